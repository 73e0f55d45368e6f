"use strict";
// Launches and buffers, laid out by dagre, drawn as SVG.
(() => {
  const place = document.getElementById("graph");
  const { nodes, edges } = Report.data.graph;
  if (!place || !nodes.length) return;
  const { svg } = Report;
  const PAD = 12;
  const LINE = 17;
  const SIGNS = { origin: "◎ origin", guilty: "✖ guilty", argument: "✖ argument" };

  const ruler = document.createElement("canvas").getContext("2d");
  function width(text, bold) {
    ruler.font = `${bold ? "600 " : ""}13px ui-monospace, "DejaVu Sans Mono", monospace`;
    return ruler.measureText(text).width;
  }

  const lines = nodes.map((node) => [
    ...(node.role ? [[SIGNS[node.role], "role"]] : []),
    [Report.cut(node.kind === "launch" ? `${node.id} ${node.name}` : node.kind === "input" ? `input ${node.name}` : node.name, 38), "name"],
    ...(node.more ? [[Report.cut(node.more, 44), "more"]] : []),
  ]);
  // From left to right, or from above where that is not as wide.
  function layout(rankdir) {
    const made = new dagre.graphlib.Graph();
    made.setGraph({ rankdir, nodesep: 16, ranksep: rankdir === "LR" ? 44 : 30, marginx: 4, marginy: 4 });
    made.setDefaultEdgeLabel(() => ({}));
    nodes.forEach((_, i) => {
      const widest = Math.max(...lines[i].map(([text, kind]) => width(text, kind !== "more")));
      made.setNode(String(i), { width: widest + 2 * PAD, height: lines[i].length * LINE + PAD });
    });
    edges.forEach(([start, end]) => made.setEdge(String(start), String(end)));
    dagre.layout(made);
    return made;
  }
  const FITS = 0.7; // of its size: texts can still be read
  const across = layout("LR");
  const isTooWide = across.graph().width * FITS > place.clientWidth;
  const down = isTooWide ? layout("TB") : across;
  const graph = down.graph().width < across.graph().width ? down : across;

  const { width: w, height: h } = graph.graph();
  const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z", class: "head" }));
  const drawing = svg("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: "group", "aria-label": "launches and the buffers between them" }, svg("defs", {}, arrow));
  for (const edge of graph.edges()) {
    const points = graph.edge(edge).points.map(({ x, y }) => `${x} ${y}`);
    drawing.append(svg("path", { d: `M${points.join("L")}`, class: "edge", "marker-end": "url(#arrow)" }));
  }
  nodes.forEach((node, i) => {
    const { x, y, width: nw, height: nh } = graph.node(String(i));
    const title = svg("title");
    title.textContent = [node.role, node.id, node.name, node.more].filter(Boolean).join("  ");
    const box = { x: x - nw / 2, y: y - nh / 2, width: nw, height: nh, rx: node.kind === "launch" ? 4 : node.kind === "buffer" ? nh / 2 : 0 };
    const group = svg("g", { class: `node ${node.kind} ${node.role}` }, title, svg("rect", box));
    if (node.kind === "input") group.append(svg("rect", { ...box, x: box.x + 3, y: box.y + 3, width: nw - 6, height: nh - 6 }));
    lines[i].forEach(([text, kind], row) => {
      const line = svg("text", { x, y: y - nh / 2 + PAD / 2 + (row + 0.75) * LINE, class: kind });
      line.textContent = text;
      group.append(line);
    });
    if (node.kind === "launch" && Report.byId.has(node.id)) {
      group.setAttribute("tabindex", "0");
      group.setAttribute("role", "link");
      const open = () => Report.choose(node.id, "graph");
      group.addEventListener("click", open);
      group.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          open();
        }
      });
    }
    drawing.append(group);
  });
  if (w > place.clientWidth && w * FITS <= place.clientWidth) drawing.classList.add("fitted");
  place.append(drawing);
  const centre = nodes.findIndex((node) => node.role === "guilty");
  if (centre >= 0) {
    const { x, y } = graph.node(String(centre));
    place.scrollTo(x - place.clientWidth / 2, y - place.clientHeight / 2);
  }
})();
