"use strict";
// A tensor's values before (line) and after (bars) a launch, over the same bins.
Report.histogram = (() => {
  const { element, colour, number } = Report;

  function words(counts) {
    const bad = [["NaN", counts.nan], ["+Inf", counts.pos_inf], ["−Inf", counts.neg_inf]].filter(([, n]) => n);
    const part = counts.sampled < counts.numel ? [`${counts.sampled} of ${counts.numel} elements`] : [Report.count(counts.numel, "element")];
    return [...part, ...bad.map(([name, n]) => `${n} ${name}`)].join(", ");
  }

  function caption(name, histogram) {
    const phases = [["before", histogram.before], ["after", histogram.after]].filter(([, counts]) => counts);
    const lines = phases.map(([phase, counts]) => element("span", { class: `phase ${phase}` }, `${phase}: ${words(counts)}`));
    const uneven = histogram.even ? [] : [element("span", { class: "muted" }, "bins grow with the magnitude")];
    return element("figcaption", {}, element("strong", {}, name), ...lines, ...uneven);
  }

  function plot(place, { edges, before, after }) {
    const bins = edges.length - 1;
    const xs = Array.from({ length: bins }, (_, i) => i + 0.5);
    const drawn = new uPlot(
      {
        width: 295,
        height: 130,
        padding: [6, 26, 0, 4],
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { time: false, range: [0, bins] }, y: { range: (u, min, max) => [0, Math.max(max, 1)] } },
        axes: [
          {
            stroke: () => colour("muted"), grid: { show: false }, ticks: { stroke: () => colour("grid"), size: 4 }, size: 24,
            splits: () => [0, bins / 2, bins], values: (u, ticks) => ticks.map((t) => number(Number(edges[Math.round(t)].toPrecision(3)))),
          },
          {
            stroke: () => colour("muted"), grid: { stroke: () => colour("grid"), width: 1 }, ticks: { show: false }, size: 46, space: 40,
            values: (u, ticks) => ticks.map((t) => (t >= 1e6 ? `${t / 1e6}M` : t >= 1e3 ? `${t / 1e3}k` : String(t))),
          },
        ],
        series: [
          {},
          { fill: () => colour("after"), stroke: () => colour("after"), width: 0, paths: uPlot.paths.bars({ size: [0.92, 100] }), points: { show: false } },
          { stroke: () => colour("before"), width: 1.5, paths: uPlot.paths.stepped({ align: 0 }), points: { show: false } },
        ],
      },
      [xs, after ? after.bins : xs.map(() => null), before ? before.bins : xs.map(() => null)],
      place,
    );
    const redraw = () => (place.isConnected ? drawn.redraw(false, true) : Report.redraws.delete(redraw));
    Report.redraws.add(redraw);
  }

  // A figure; the chart is drawn when `show` is called, once the figure is on the page.
  return (name, histogram) => {
    const place = element("div", { role: "img", "aria-label": `histogram of ${name}` });
    const figure = element("figure", { class: "histogram" }, caption(name, histogram), place);
    const empty = !histogram.edges.length;
    if (empty) place.append(element("p", { class: "muted" }, "no finite values"));
    return { figure, show: () => !empty && plot(place, histogram) };
  };
})();
