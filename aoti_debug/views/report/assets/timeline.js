"use strict";
// The launches over time, one lane a host thread; marks stand above their launch.
(() => {
  const place = document.getElementById("timeline-plot");
  const { data, markOf, element, colour, duration } = Report;
  if (!place || !data.launches.length) return;

  const launches = [...data.launches].sort((a, b) => a.begin - b.begin);
  const start = launches[0].begin;
  const last = Math.max(...launches.map((x) => x.begin + (x.duration ?? 0)));
  const threads = [...new Set(launches.map((x) => x.thread))];
  const lane = new Map(threads.map((thread, index) => [thread, index]));
  const HEAD = 34; // pixels of a lane that marks stand in
  const BODY = 20;
  let byOrder = false;
  let plot = null;

  const left = (i) => (byOrder ? i : launches[i].begin - start);
  const right = (i) => (byOrder ? i + 0.85 : launches[i].begin - start + (launches[i].duration ?? last - launches[i].begin));
  const span = () => (byOrder ? launches.length : Math.max(last - start, 1));

  function draw(u) {
    const { ctx, bbox } = u;
    const ratio = uPlot.pxRatio;
    const tones = { bad: colour("bad"), warn: colour("warn"), mild: colour("mild"), origin: colour("origin") };
    const [plain, chosenColour] = [colour("launch"), colour("accent")];
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.textAlign = "center";
    ctx.textBaseline = "alphabetic";
    ctx.font = `${13 * ratio}px sans-serif`;
    let drawn = -1;
    launches.forEach((launch, i) => {
      const x = u.valToPos(left(i), "x", true);
      const end = u.valToPos(right(i), "x", true);
      if (end < bbox.left || x > bbox.left + bbox.width) return;
      const top = bbox.top + (lane.get(launch.thread) * (HEAD + BODY) + HEAD) * ratio;
      const gravest = launch.marks.length ? markOf.get(launch.marks[0]) : null;
      const picked = launch === Report.chosen();
      if (gravest || picked || end - drawn >= 0.5 || x - drawn >= 0.5) {
        ctx.fillStyle = picked ? chosenColour : gravest ? tones[gravest.tone] : plain;
        const width = Math.max(end - x, ratio);
        ctx.fillRect(x, top, width, BODY * ratio);
        if (width > 4 * ratio) ctx.clearRect(x + width - ratio * 0.5, top, ratio * 0.5, BODY * ratio);
        drawn = Math.max(drawn, x + width);
      }
      if (picked) {
        ctx.strokeStyle = chosenColour;
        ctx.lineWidth = 2 * ratio;
        ctx.strokeRect(x - ratio, top - 3 * ratio, Math.max(end - x, ratio) + 2 * ratio, (BODY + 6) * ratio);
      }
    });
    const free = threads.map(() => -Infinity);
    launches.forEach((launch, i) => {
      if (!launch.marks.length) return;
      const index = lane.get(launch.thread);
      const { glyph, tone } = markOf.get(launch.marks[0]);
      const x = (u.valToPos(left(i), "x", true) + u.valToPos(right(i), "x", true)) / 2;
      if (x - free[index] < 11 * ratio && tone !== "bad") return;
      free[index] = x;
      const top = bbox.top + (index * (HEAD + BODY) + HEAD) * ratio;
      ctx.fillStyle = tones[tone];
      ctx.fillText(glyph, Math.min(Math.max(x, bbox.left + 6 * ratio), bbox.left + bbox.width - 6 * ratio), top - 6 * ratio);
    });
    ctx.restore();
  }

  const tip = element("div", { class: "tip", hidden: true });
  function under(u) {
    const x = u.posToVal(u.cursor.left, "x");
    const thread = threads[Math.min(Math.max(Math.floor(u.cursor.top / (HEAD + BODY)), 0), threads.length - 1)];
    const reach = 4 * (u.scales.x.max - u.scales.x.min) / Math.max(u.bbox.width / uPlot.pxRatio, 1);
    let best = null;
    let distance = reach;
    launches.forEach((launch, i) => {
      if (launch.thread !== thread) return;
      const away = Math.max(left(i) - x, x - right(i), 0) - (launch.marks.length ? reach * 1e-3 : 0);
      if (away < distance) [best, distance] = [launch, away];
    });
    return best;
  }
  function point(u) {
    const launch = u.cursor.left >= 0 ? under(u) : null;
    tip.hidden = !launch;
    if (!launch) return;
    tip.replaceChildren(
      element("strong", {}, `${launch.id}  ${Report.cut(launch.info.kernel, 60)}`),
      element("div", {}, duration(launch.duration), Report.modelLine(launch.info) && ` · ${Report.modelLine(launch.info)}`),
      ...Report.markElements(launch.marks),
    );
    const over = u.over.getBoundingClientRect();
    const width = tip.offsetWidth;
    tip.style.left = `${Math.min(Math.max(u.cursor.left - width / 2, 0), over.width - width)}px`;
    tip.style.top = `${u.cursor.top + 18}px`;
  }

  function make() {
    plot?.destroy();
    const height = threads.length * (HEAD + BODY);
    plot = new uPlot(
      {
        width: place.clientWidth,
        height: height + 36,
        padding: [0, 30, 0, threads.length > 1 ? 0 : 16],
        legend: { show: false },
        cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 5 } },
        scales: { x: { time: false, range: (u, min, max) => (min >= max ? [0, span()] : [Math.max(min, -span() * 0.01), Math.min(max, span() * 1.01)]) }, y: { range: [0, 1] } },
        axes: [
          {
            stroke: () => colour("muted"), grid: { stroke: () => colour("grid"), width: 1 }, ticks: { stroke: () => colour("grid") },
            size: 36, values: (u, ticks) => ticks.map((t) => (byOrder ? String(t) : duration(Math.max(t, 0)))),
            space: 80,
          },
          {
            show: threads.length > 1, stroke: () => colour("muted"), grid: { show: false }, ticks: { show: false }, size: 76,
            splits: () => threads.map((_, i) => 1 - ((i + 0.7) / threads.length)), values: () => threads.map((t) => `thread ${t}`),
          },
        ],
        series: [{}, { paths: () => null, points: { show: false } }],
        hooks: { draw: [draw], setCursor: [point] },
      },
      [[0, span()], [0, 1]],
      place,
    );
    plot.over.append(tip);
    plot.over.addEventListener("click", () => {
      const launch = plot.select.width ? null : under(plot);
      if (launch) Report.choose(launch.id, "timeline");
    });
    plot.root.setAttribute("role", "img");
    const marked = launches.filter((x) => x.marks.length).length;
    plot.root.setAttribute("aria-label", `${Report.count(launches.length, "launch")} over time, ${marked} with a mark; the table below lists them all`);
  }

  make();
  document.querySelectorAll("input[name=axis]").forEach((input) => {
    input.addEventListener("change", () => {
      byOrder = input.value === "order";
      make();
    });
  });
  document.getElementById("whole").addEventListener("click", () => plot.setScale("x", { min: 0, max: span() }));
  new ResizeObserver(() => {
    if (place.clientWidth) plot.setSize({ width: place.clientWidth, height: plot.height });
  }).observe(place);
  Report.redraws.add(() => plot.redraw(false, true));
  Report.onChoose(() => plot.redraw(false, true));

  const used = Report.marks.filter((mark) => launches.some((x) => x.marks.includes(mark.name)));
  document.getElementById("legend").append(
    ...used.map((mark) => {
      const count = launches.filter((x) => x.marks.includes(mark.name)).length;
      return element("li", {}, ...Report.markElements([mark.name]), ` ${count}`);
    }),
  );
})();
