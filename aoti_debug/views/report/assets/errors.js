"use strict";
// The error of every launch: from its own inputs (dots) and inherited (line), on a log scale.
// A picture has its `launches`, each with a comparison {verdict, reason, local, inherited}: without `local` it is a gap,
// of an infinite one the dot stands at the top, beside the sign `beyond`; `verdicts` with their tones, the gravest last;
// `first`, the launch that matters most, and its `label`; `numbers` of a comparison in words; the `counts` of verdicts;
// the verdicts that are `gaps`; `exponents` of ten that are drawn.
Report.errors = (picture) => {
  const place = document.getElementById("errors");
  const { element, svg } = Report;
  const { launches } = picture;
  const BOX = { left: 62, right: 16, top: 26, bottom: 30 };
  const [LOWEST, HIGHEST] = picture.exponents; // what is beyond stands at the border
  const ORDER = picture.verdicts.map(([verdict]) => verdict); // the last is drawn above the others
  const TONE = Object.fromEntries(picture.verdicts);
  const GRAVEST = ORDER[ORDER.length - 1];

  const errors = launches.flatMap(({ comparison }) => [comparison.local, comparison.inherited]).filter((x) => x > 0 && x !== Infinity);
  const isBeyond = launches.some(({ comparison }) => comparison.local === Infinity);
  const HEIGHT = errors.length ? 300 : isBeyond ? 170 : 110;
  const exponents = errors.map((x) => Math.min(Math.max(Math.log10(x), LOWEST), HIGHEST));
  const low = errors.length ? Math.floor(exponents.reduce((a, b) => Math.min(a, b))) : -8;
  const high = errors.length ? Math.max(Math.ceil(exponents.reduce((a, b) => Math.max(a, b))), low + 2) : 0;
  const first = launches.findIndex((launch) => launch.id === picture.first);

  const floor = HEIGHT - BOX.bottom; // the line of no error at all
  const ceiling = BOX.top + (isBeyond ? 22 : 0); // the line of the largest error
  const unit = (floor - 18 - ceiling) / (high - low);
  const y = (error) => (error === Infinity ? BOX.top : error > 0 ? ceiling + (high - Math.min(Math.max(Math.log10(error), low), high)) * unit : floor);
  let width = 0;
  const x = (i) => BOX.left + ((i + 0.5) / launches.length) * (width - BOX.left - BOX.right);

  function text(words, attributes) {
    const made = svg("text", attributes);
    made.textContent = words;
    return made;
  }

  function scale() {
    const step = Math.ceil((high - low) / 7);
    const drawn = [];
    for (let exponent = low; errors.length && exponent <= high; exponent += step) {
      const at = y(10 ** exponent);
      drawn.push(svg("path", { d: `M${BOX.left} ${at}H${width - BOX.right}`, class: "rule" }));
      const name = text("10", { x: BOX.left - 8, y: at + 4, "text-anchor": "end" });
      const power = svg("tspan", { dy: -5, "font-size": "9" });
      power.textContent = String(exponent).replace("-", "−");
      name.append(power);
      drawn.push(name);
    }
    drawn.push(svg("path", { d: `M${BOX.left} ${floor}H${width - BOX.right}`, class: "rule zero" }), text("none", { x: BOX.left - 8, y: floor + 4, "text-anchor": "end" }));
    if (isBeyond) drawn.push(svg("path", { d: `M${BOX.left} ${BOX.top}H${width - BOX.right}`, class: "rule zero" }), text(picture.beyond, { x: BOX.left - 8, y: BOX.top + 4, "text-anchor": "end" }));
    const ends = [[0, "start"], [launches.length - 1, "end"]].filter(([i], n) => n === 0 || i > 0);
    drawn.push(...ends.map(([i, anchor]) => text(launches[i].id, { x: anchor === "start" ? BOX.left : width - BOX.right, y: HEIGHT - 8, "text-anchor": anchor })));
    return drawn;
  }

  const gaps = picture.gaps.filter((verdict) => picture.counts[verdict]);
  const gapCount = gaps.reduce((sum, verdict) => sum + picture.counts[verdict], 0);

  // A line where a call of the model begins, if there are few.
  function calls() {
    const callOf = (i) => launches[i].id.split(" ").pop().split(".")[0]; // "A 0.3" is of call 0, too
    const begins = launches.map((_, i) => i).filter((i) => i && callOf(i) !== callOf(i - 1));
    if (begins.length > 12) return [];
    return begins.flatMap((i) => {
      const at = (x(i) + x(i - 1)) / 2;
      return [svg("path", { d: `M${at} ${BOX.top}V${floor}`, class: "call" }), text(`call ${callOf(i)}`, { x: at + 4, y: HEIGHT - 8 })];
    });
  }

  // Launches without a verdict: one rectangle for each series of them.
  function gapShapes() {
    const half = (width - BOX.left - BOX.right) / launches.length / 2;
    const least = gapCount < width / 8 ? 1.5 : 0; // pixels: a few narrow gaps must be seen, many must not hide the rest
    let path = "";
    launches.forEach((launch, i) => {
      if (launch.comparison.local !== undefined) return;
      let last = i;
      if (i && launches[i - 1].comparison.local === undefined) return;
      while (last + 1 < launches.length && launches[last + 1].comparison.local === undefined) last += 1;
      path += `M${(x(i) - half).toFixed(2)} ${BOX.top}H${Math.max(x(last) + half, x(i) - half + least).toFixed(2)}V${floor}H${(x(i) - half).toFixed(2)}z`;
    });
    return path ? [svg("path", { d: path, fill: "url(#hatch)" })] : [];
  }

  function inherited() {
    let path = "";
    let broken = true;
    launches.forEach(({ comparison }, i) => {
      const known = comparison.inherited !== undefined && comparison.inherited !== null;
      if (known) path += `${broken ? "M" : "L"}${x(i).toFixed(1)} ${y(comparison.inherited).toFixed(1)}${broken ? "h0" : ""}`;
      else if (comparison.local === undefined) return; // the line goes on behind a gap
      broken = !known;
    });
    return path ? [svg("path", { d: path, class: "inherited" })] : [];
  }

  function local(verdicts) {
    return verdicts.flatMap((verdict) => {
      const points = launches.flatMap(({ comparison }, i) => (comparison.verdict === verdict ? [`M${x(i).toFixed(1)} ${y(comparison.local).toFixed(1)}h0`] : []));
      const size = verdict === GRAVEST ? 9 : launches.length > 2000 ? 3 : launches.length > 300 ? 4.5 : 6.5;
      return points.length ? [svg("path", { d: points.join(""), class: `local ${TONE[verdict]}`, "stroke-width": size })] : [];
    });
  }

  function entry() {
    if (first < 0) return [];
    const at = x(first);
    const anchor = at > width * 0.5 ? "end" : "start";
    const room = Math.floor((anchor === "end" ? at : width - at) / 7.2) - picture.label.length - 3; // characters
    const words = Report.cut(`${launches[first].id} ${launches[first].info.kernel}`, Math.min(Math.max(room, 12), 56));
    const label = text(`${picture.label}: ${words}`, { x: at + (anchor === "end" ? -6 : 6), y: 15, "text-anchor": anchor, class: "entry" });
    return [svg("path", { d: `M${at} 4V${floor}`, class: "entry" }), label];
  }

  const tip = element("div", { class: "tip", hidden: true });
  const cursor = svg("path", { class: "cursor" });
  const picked = svg("path", { class: "picked" });

  function describe(launch) {
    const { comparison } = launch;
    const frame = launch.info.frames[0];
    const more = comparison.local === undefined
      ? [comparison.reason]
      : [picture.numbers(comparison)];
    return [
      element("strong", {}, `${launch.id}  ${Report.cut(launch.info.kernel, 60)}`),
      ...(frame ? [element("div", {}, Report.modelLine(launch.info), frame.text ? element("code", {}, ` ${Report.cut(frame.text.trim(), 70)}`) : "")] : []),
      element("div", { class: `verdict-word ${TONE[comparison.verdict] ?? ""}` }, comparison.verdict),
      ...more.filter(Boolean).map((words) => element("div", {}, words)),
    ];
  }

  function under(event) {
    const at = event.clientX - place.getBoundingClientRect().left;
    const i = Math.floor(((at - BOX.left) / (width - BOX.left - BOX.right)) * launches.length);
    const reach = Math.floor((3 * launches.length) / width); // launches within three pixels: the gravest of them
    let best = Math.min(Math.max(i, 0), launches.length - 1);
    const rank = (n) => ORDER.indexOf(launches[n].comparison.verdict);
    for (let n = best - reach; n <= best + reach; n += 1) {
      if (n >= 0 && n < launches.length && TONE[launches[n].comparison.verdict] !== "good" && rank(n) > rank(best)) best = n;
    }
    return at < BOX.left - 4 || at > width - BOX.right + 4 ? -1 : best;
  }

  function point(event) {
    const i = under(event);
    tip.hidden = i < 0;
    cursor.setAttribute("d", i < 0 ? "" : `M${x(i)} ${BOX.top}V${floor}`);
    if (i < 0) return;
    tip.replaceChildren(...describe(launches[i]));
    tip.style.left = `${Math.min(Math.max(x(i) + 14, 0), Math.max(width - tip.offsetWidth, 0))}px`;
    if (x(i) + 14 + tip.offsetWidth > width) tip.style.left = `${Math.max(x(i) - 14 - tip.offsetWidth, 0)}px`;
    tip.style.top = `${BOX.top + 8}px`;
  }

  function mark() {
    const i = launches.indexOf(Report.chosen());
    picked.setAttribute("d", i < 0 || !width ? "" : `M${x(i)} ${floor + 2}l-5 8h10z`);
  }

  function draw() {
    if (!place.clientWidth || place.clientWidth === width) return;
    width = place.clientWidth;
    const hatch = svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { width: 6, height: 6, class: "hatch-ground" }), svg("path", { d: "M0 0V6", class: "hatch-line" }));
    const gravest = picture.counts[GRAVEST] ?? 0;
    const drawing = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `errors of ${Report.count(launches.length, "launch")}, ${gravest} of them ${GRAVEST}; the table below lists them all` },
      svg("defs", {}, hatch), ...gapShapes(), ...scale(), ...calls(), ...local(ORDER.slice(0, -1)), ...inherited(), ...entry(), ...local([GRAVEST]), cursor, picked);
    place.replaceChildren(drawing, tip);
    mark();
  }

  const areInherited = launches.some(({ comparison }) => typeof comparison.inherited === "number");
  const areMeasured = launches.some(({ comparison }) => comparison.local !== undefined);
  if (areMeasured) {
    place.addEventListener("mousemove", point);
    place.addEventListener("mouseleave", () => {
      tip.hidden = true;
      cursor.setAttribute("d", "");
    });
    place.addEventListener("click", (event) => {
      const i = under(event);
      if (i >= 0) Report.choose(launches[i].id, "timeline");
    });
    draw();
    new ResizeObserver(draw).observe(place);
    Report.onChoose(mark);
  } else {
    place.remove();
  }

  const { counts } = picture;
  const entries = [...ORDER].reverse().filter((verdict) => counts[verdict]);
  const names = entries.map((verdict) => element("li", {}, element("span", { class: `dot ${TONE[verdict]}`, "aria-hidden": "true" }), ` ${verdict} ${counts[verdict]}`));
  function why(verdict) {
    const reasons = new Map();
    launches.filter(({ comparison }) => comparison.verdict === verdict && comparison.reason).forEach(({ comparison }) => reasons.set(comparison.reason, (reasons.get(comparison.reason) ?? 0) + 1));
    return [...reasons].sort((a, b) => b[1] - a[1]).map(([reason, n]) => `${n} × ${reason}`).join("\n");
  }
  document.getElementById("errors-legend").append(
    ...names,
    ...gaps.map((verdict) => element("li", { title: why(verdict) }, element("span", { class: "dot gap", "aria-hidden": "true" }), ` ${verdict} ${counts[verdict]}`)),
    ...(areInherited ? [element("li", {}, element("span", { class: "dot line", "aria-hidden": "true" }), " inherited")] : []),
  );
  return { areMeasured, areInherited, isBeyond };
};
