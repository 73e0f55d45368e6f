"use strict";
// What all parts of the page share: the data, elements made from text, numbers, the chosen launch.
const Report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  data.launches.forEach((launch, order) => {
    launch.order = order;
    launch.info = data.sites[launch.site];
    launch.comparison = launch.compared ? comparison(launch.compared) : null;
  });
  // What the comparison with the program says of a launch; without `local` if it was not comparable.
  function comparison([verdict, reason, notes, local, inherited, eager, ulpMedian, ulpMax, rtol, atol, condition, metric]) {
    const sentence = (index) => (index === null ? "" : data.comparison.reasons[index]);
    const words = { verdict: data.comparison.verdicts[verdict], reason: sentence(reason), notes: notes.map(sentence) };
    return { ...words, local, inherited, eager, ulpMedian, ulpMax, rtol, atol, condition, metric };
  }
  const byId = new Map(data.launches.map((launch) => [launch.id, launch]));

  // Marks, the gravest first. `glyph` and `name` tell them apart without colour.
  const marks = [
    ["guilty", "✖", "bad"],
    ["wrong value", "≉", "bad"],
    ["guard damaged", "⇥", "bad"],
    ["suspect", "?", "bad"],
    ["never returned", "◌", "bad"],
    ["failed", "!", "bad"],
    ["origin", "◎", "origin"],
    ["NaN", "▲", "warn"],
    ["Inf", "∞", "warn"],
    ["near overflow", "◆", "mild"],
  ].map(([name, glyph, tone]) => ({ name, glyph, tone }));
  const markOf = new Map(marks.map((mark) => [mark.name, mark]));

  // element("td", {class: "right"}, "text", child): texts become text nodes, never markup.
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== ""));
    return made;
  }

  function svg(tag, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function markElements(names) {
    return names.map((name) => {
      const { glyph, tone } = markOf.get(name);
      const sign = element("span", { "aria-hidden": "true" }, `${glyph} `);
      return element("span", { class: `mark ${tone}` }, sign, name);
    });
  }

  function number(value) {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return Array.isArray(value) ? `${number(value[0])}${value[1] < 0 ? "" : "+"}${number(value[1])}j` : String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
    if (value !== 0 && Math.abs(value) < 1e-4) return value.toExponential(5).replace(/\.?0*e/, "e");
    return String(Number(value.toPrecision(6)));
  }

  // An error: two digits tell enough.
  const error = (value) => (value === null || value === undefined ? "–" : value === 0 ? "0" : value >= 1e300 ? "∞" : (Math.abs(value) < 1e-3 ? value.toExponential(1) : value.toPrecision(2)).replace(/\.0(?=e|$)/, "").replace(/e([+-])/, (_, sign) => (sign === "-" ? "e-" : "e")));

  const count = (amount, noun) => `${amount} ${noun}${amount === 1 ? "" : noun.endsWith("ch") ? "es" : "s"}`;

  function duration(ns) {
    if (ns === null || ns === undefined) return "–";
    const [unit, size] = ns < 1e3 ? ["ns", 1] : ns < 1e6 ? ["µs", 1e3] : ns < 1e9 ? ["ms", 1e6] : ["s", 1e9];
    return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }

  function modelLine(site) {
    if (!site.frames.length) return "";
    const { file, line } = site.frames[0];
    return `${site.certainty === "inferred" ? "~" : ""}${file.slice(file.lastIndexOf("/") + 1)}:${line}`;
  }

  // A frame of the model: where it is, a link if this machine has the file.
  function place(frame) {
    const words = `${frame.file}:${frame.line}`;
    const link = Object.hasOwn(data.links, frame.file) ? `${data.links[frame.file]}:${frame.line}` : null;
    return link ? element("a", { class: "path", href: link, title: "open in the editor" }, words) : element("span", { class: "path" }, words);
  }

  function tensor(layout) {
    const [dtype, device, kind, shape] = data.layouts[layout];
    return kind === "strided" ? `${dtype}[${shape.join(",")}] ${device}` : `${dtype} ${kind} ${device}`;
  }

  // The middle of a long name is cut out: both ends tell names apart.
  function cut(name, most) {
    if (name.length <= most) return name;
    const half = Math.floor((most - 1) / 2);
    return `${name.slice(0, most - 1 - half)}…${name.slice(name.length - half)}`;
  }

  // A name that fits any width: its beginning is cut off where it would not fit, its end stands. `cut` fits a number of characters.
  function cutElement(name) {
    const end = Math.min(Math.floor(name.length / 2), 14);
    if (name.length <= 8) return document.createTextNode(name);
    return element("span", { class: "cut" }, element("span", {}, name.slice(0, -end)), element("span", {}, name.slice(-end)));
  }

  // Names with their values, which stay together where a line ends.
  function pairs(entries) {
    return element("dl", { class: "pairs" }, ...entries.map(([name, value]) => element("div", {}, element("dt", {}, name), value instanceof Node ? value : element("dd", {}, String(value)))));
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const listeners = [];
  let chosen = null;
  function choose(id, by = "") {
    const launch = byId.get(id);
    if (!launch || chosen === launch) return;
    chosen = launch;
    listeners.forEach((listen) => listen(launch, by));
  }

  // Canvases know nothing of style sheets: they are drawn again when the colours change.
  const redraws = new Set();
  const redrawAll = () => redraws.forEach((redraw) => redraw());
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    window.matchMedia(query).addEventListener("change", redrawAll);
  }

  return {
    data, byId, marks, markOf, element, svg, markElements, number, error, count, duration, modelLine, place, tensor, cut, cutElement, pairs, colour, choose, redraws,
    onChoose: (listener) => listeners.push(listener),
    chosen: () => chosen,
  };
})();
