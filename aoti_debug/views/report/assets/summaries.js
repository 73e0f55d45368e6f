"use strict";
// The curves of each tensor over the calls or replays; a card draws its charts once it is in view.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const place = document.getElementById("curves");
  const hues = ["accent", "s", "f", "k"]; // of the precisions
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const redraws = new Set();

  // element("p", {class: "right"}, "text", child): texts become text nodes, never markup.
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  const MAX_BITS = 40; // of headroom: more says nothing
  const isExtreme = (value) => value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3);
  const short = (value) => (isExtreme(value) ? value.toExponential(1).replace(".0e", "e").replace("e+", "e") : String(Number(value.toPrecision(3))));
  const line = (name, hue, options = {}) => ({
    label: name, stroke: () => colour(hue), width: 1.4, spanGaps: true, value: (u, v) => (v === null ? "–" : String(v)), ...options,
    points: { show: (u) => u.data[0].length < 40, size: 4, fill: () => colour(hue) },
  });

  function draw(figure, one, series, columns, options = {}) {
    const drawn = new uPlot(
      {
        width: figure.clientWidth, height: 150, padding: [8, 10, 0, 0],
        cursor: { y: false, drag: { x: true, y: false } },
        legend: { show: true, live: true },
        scales: { x: { time: false }, y: { range: (u, low, high) => range(low, high, options) } },
        axes: [
          { stroke: () => colour("muted"), grid: { show: false }, ticks: { stroke: () => colour("grid"), size: 4 }, size: 26, values: (u, ticks) => ticks.map((t) => (Number.isInteger(t) ? String(t) : "")) },
          { stroke: () => colour("muted"), grid: { stroke: () => colour("grid"), width: 1 }, ticks: { show: false }, size: 56, space: 30, values: (u, ticks) => ticks.map(short) },
        ],
        bands: options.bands ?? [],
        series: [{ label: one.unit, value: (u, v) => (v === null ? "–" : String(v)) }, ...series],
        hooks: options.zero ? { drawAxes: [zeroLine] } : {},
      },
      [one.call, ...columns],
      figure,
    );
    redraws.add(() => drawn.redraw(false, true));
  }

  function range(low, high, { floor, most }) {
    if (low === null || high === null) return [0, 1];
    if (most !== undefined) return [Math.min(low, 0) - 1, Math.min(high, most) + 1];
    const reach = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
    return [floor === undefined ? low - reach : Math.min(floor, low), high + reach];
  }

  function zeroLine(u) {
    if (u.scales.y.min >= 0) return;
    const y = Math.round(u.valToPos(0, "y", true));
    u.ctx.save();
    u.ctx.strokeStyle = colour("bad");
    u.ctx.setLineDash([4, 4]);
    u.ctx.beginPath();
    u.ctx.moveTo(u.bbox.left, y);
    u.ctx.lineTo(u.bbox.left + u.bbox.width, y);
    u.ctx.stroke();
    u.ctx.restore();
  }

  const shifted = (one, sign) => one.mean.map((mean, i) => (mean === null || one.std[i] === null ? null : mean + sign * one.std[i]));
  const hidden = (name) => ({ label: name, stroke: "transparent", width: 0, points: { show: false }, class: "unlisted" });

  function charts(one, figures) {
    const band = () => `color-mix(in srgb, ${colour("after")} 25%, transparent)`;
    draw(figures[0], one, [line("max", "after"), hidden("above"), line("mean", "text"), hidden("below"), line("min", "after")],
      [one.max, shifted(one, 1), one.mean, shifted(one, -1), one.min], { bands: [{ series: [2, 4], fill: band }] });
    draw(figures[1], one, [line("std", "accent")], [one.std], { floor: 0 });
    draw(figures[2], one, [line("zeros %", "muted"), line("not finite %", "bad")], [one.zeros, one.nonfinite], { floor: 0 });
    if (!one.floating) return figures[3].remove();
    const over = data.precisions.map((name, i) => line(`${name} over`, hues[i]));
    const under = data.precisions.map((name, i) => line(`${name} under`, hues[i], { dash: [5, 4] }));
    draw(figures[3], one, [...over, ...under], [...one.over, ...one.under], { zero: true, most: MAX_BITS });
  }

  const MARGIN = 400; // pixels: what is so near to the window is drawn as well
  const drawCard = (card) => charts(card.summary.one, card.summary.figures);
  const seen = new IntersectionObserver((entries) => {
    for (const { target } of entries.filter((x) => x.isIntersecting)) {
      seen.unobserve(target);
      drawCard(target);
    }
  }, { rootMargin: `${MARGIN}px` });

  const cards = data.series.map((one) => {
    const marks = one.drift.map((text) => element("span", { class: "mark bad" }, "≠ ", text));
    const names = ["values", "standard deviation", "share of elements", "headroom, bits"];
    const figures = names.map((name) => element("figure", {}, element("figcaption", {}, name)));
    const headroom = data.precisions.map((name, i) => `${name} ${one.headroom[i]}`).join(" · ");
    const card = element("article", { class: "card" },
      element("h3", {}, element("span", { class: "launch" }, String(one.launch)), ` ${one.tag}`),
      element("p", { class: "facts" }, element("code", {}, one.argument), ` of ${one.kernel}, ${one.dtype} · least headroom ${headroom}`),
      element("p", { class: "marks" }, ...marks),
      element("div", { class: "charts" }, ...figures));
    card.summary = { one, figures, words: `${one.launch} ${one.tag} ${one.kernel} ${one.argument}`.toLowerCase() };
    return card;
  });
  place.append(...cards);
  const atFirst = new Set(cards.filter((card) => card.getBoundingClientRect().top < window.innerHeight + MARGIN));
  cards.forEach((card) => (atFirst.has(card) ? drawCard(card) : seen.observe(card)));

  const search = document.getElementById("search");
  const only = document.getElementById("drifting");
  function select() {
    const words = search.value.toLowerCase();
    let shown = 0;
    for (const card of cards) {
      card.hidden = !card.summary.words.includes(words) || (only.checked && !card.summary.one.drift.length);
      shown += card.hidden ? 0 : 1;
    }
    document.getElementById("shown").textContent = shown === cards.length ? "" : `${shown} of ${cards.length}`;
  }
  search.addEventListener("input", select);
  only.addEventListener("change", select);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    window.matchMedia(query).addEventListener("change", () => redraws.forEach((redraw) => redraw()));
  }
})();
