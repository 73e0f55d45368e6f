"use strict";
// The chosen launch in full.
(() => {
  const panel = document.getElementById("detail");
  if (!panel) return;
  const { data, element, number, duration } = Report;
  const PHASES = ["before", "after"];
  const HEADS = ["elements", "NaN", "+Inf", "−Inf", "zeros", "min", "max", "mean", "std"];
  const PICK = [0, 1, 2, 3, 4, 5, 6, 9, 10]; // of a list of statistics
  const LONGEST = 32; // characters of the name of an argument
  const BAD = new Set([1, 2, 3]);

  function facts(launch) {
    const site = launch.info;
    const rows = [
      ["kind", site.kind],
      ["operator", site.op],
      ["status", launch.status],
      ["error", launch.fault],
      ["time on the host", duration(launch.duration)],
      ["iteration", launch.loops.join(".")],
      ["measured", launch.replay === null ? null : `statistics of replay ${launch.replay} of the CUDA graph that captured call ${launch.call}`],
      ["in", site.subgraph ? `${site.function}, ${site.subgraph}` : site.function],
      ["thread", data.launches.some((x) => x.thread !== launch.thread) ? launch.thread : null],
    ].filter(([, value]) => value !== null && value !== "");
    return Report.pairs(rows);
  }

  function modelLines(site) {
    if (!site.frames.length) return [element("p", { class: "muted" }, "model line unknown")];
    const sure = site.certainty === "exact" ? "" : ` (${site.certainty})`;
    const lines = site.frames.flatMap((frame) => [
      element("p", { class: "frame" }, Report.place(frame), ` in ${frame.function}${sure}`),
      frame.text ? element("pre", { class: "code one" }, element("code", {}, frame.text.trim())) : null,
    ]).filter(Boolean);
    return lines;
  }

  function folded(title, ...children) {
    return children.length ? element("details", {}, element("summary", {}, title), ...children) : null;
  }

  function stackOf(launch) {
    const frames = launch.stack;
    return frames.length ? folded("call stack of the error", element("ol", { class: "stack" }, ...frames.map((frame) => element("li", {}, frame)))) : null;
  }

  function tensorText(entry) {
    const [, , , shape, strides, offset, bytes] = data.layouts[entry[0]];
    const expected = [];
    shape.reduceRight((size, n) => (expected.unshift(size), size * n), 1);
    const dense = strides.every((stride, i) => shape[i] === 1 || stride === expected[i]);
    const more = [dense ? "" : `strides ${strides.join(",")}`, offset ? `offset ${offset}` : ""].filter(Boolean);
    const title = `strides ${strides.join(",")}; offset ${offset}; storage of ${bytes} bytes; data at ${entry[1]}`;
    return element("span", { title }, Report.tensor(entry[0]), more.length ? element("span", { class: "muted" }, ` ${more.join(", ")}`) : "");
  }

  function phaseRow(phase, found, first, rows) {
    const [statistics, reason] = found ?? [null, null];
    const cells = statistics
      ? PICK.map((at) => element("td", { class: `right${BAD.has(at) && statistics[at] ? " hot" : ""}` }, number(statistics[at])))
      : [element("td", { class: "muted", colspan: PICK.length }, reason || "–")];
    return element("tr", {}, ...first(rows), element("td", { class: "phase" }, phase), ...cells);
  }

  function argumentRows(launch) {
    const tensors = launch.args.map((entry, i) => [entry, launch.info.args[i]]).filter(([entry]) => entry.length && entry[0] !== null);
    return tensors.flatMap(([entry, spec]) => {
      const known = PHASES.map((phase, i) => [phase, entry[2 + i]]).filter(([, found]) => found);
      const lead = (span) => [
        element("td", { rowspan: span, class: "muted" }, spec.role === "inout" ? "in-out" : spec.role === "none" ? "" : spec.role),
        element("th", { scope: "row", rowspan: span, title: `${spec.name} ${spec.expression ?? ""}` }, Report.cut(spec.name, LONGEST)),
        element("td", { rowspan: span }, tensorText(entry)),
      ];
      if (!known.length) return [element("tr", {}, ...lead(1), element("td", { colspan: PICK.length + 1 }))];
      return known.map(([phase, found], i) => phaseRow(phase, found, (span) => (i ? [] : lead(span)), known.length));
    });
  }

  function argumentTable(launch) {
    const rows = argumentRows(launch);
    if (!rows.length) return null;
    const measured = rows.some((row) => row.querySelector(".phase"));
    const heads = measured ? ["role", "argument", "tensor", "phase", ...HEADS] : ["role", "argument", "tensor"];
    if (!measured) rows.forEach((row) => row.lastChild.remove());
    const table = element("table", { class: "small arguments" },
      element("thead", {}, element("tr", {}, ...heads.map((head, i) => element("th", { scope: "col", class: i > 3 ? "right" : null }, head)))),
      element("tbody", {}, ...rows));
    return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "tensors" }, table);
  }

  function scalars(launch) {
    const found = launch.args.map((entry, i) => [entry, launch.info.args[i]]).filter(([entry]) => entry[0] === null && entry.length > 1);
    const words = found.map(([entry, spec]) => `${spec.param && !spec.name.includes("[") && spec.param !== spec.name ? `${spec.param} ` : ""}${spec.name} = ${number(entry[1])}`);
    return words.length ? element("p", { class: "scalars" }, ...words.map((word) => element("code", {}, word))) : null;
  }

  function grids(launch) {
    return launch.grids.map(([kernel, grid, warps, shared, values]) => {
      const [name, params] = data.kernels[kernel];
      const spelled = values.map((value, i) => `${params[i][0]} = ${params[i][1] === "CUdeviceptr" ? `0x${value.toString(16)}` : number(value)}`);
      const words = [`grid ${grid.join(" × ")}`, Report.count(warps, "warp"), `${shared} bytes of shared memory`, ...spelled];
      return element("p", { class: "scalars" }, element("strong", {}, `${name} `), ...words.map((word) => element("code", {}, word)));
    });
  }

  function values(launch) {
    return launch.args.flatMap((entry, i) => PHASES.map((phase, p) => [launch.info.args[i].name, phase, entry[2 + p]?.[2], entry[2 + p]?.[0]?.[0]]))
      .filter(([, , found]) => found && found.length)
      .map(([name, phase, found, of]) => element("p", { class: "values" }, element("strong", {}, `${name} ${phase} `),
        found.map(number).join("  "), of > found.length ? ` … ${of} elements` : ""));
  }

  function files(launch) {
    const found = launch.args.flatMap((entry) => PHASES.map((_, p) => entry[2 + p]?.[3])).filter(Boolean);
    const unique = [...new Set(found)];
    return folded(`Files (${unique.length})`, ...(unique.length ? [element("ul", { class: "plain" }, ...unique.map((file) => element("li", {}, element("code", {}, file))))] : []));
  }

  function sources(site) {
    return site.sources.map((index) => {
      const template = document.getElementById(`source-${index}`);
      const name = site.sources.length > 1 ? `Source of ${template.dataset.name}` : "Source";
      const made = element("details", { open: site.sources.length === 1 }, element("summary", {}, `${name} (${template.dataset.language})`), template.content.cloneNode(true));
      return made;
    });
  }

  // What the comparison with the program says.
  function comparison(launch) {
    const found = launch.comparison;
    if (!found) return [];
    const numbers = found.local === undefined ? [] : [
      ["local error", found.local], ["inherited", found.inherited], ["eager", found.eager], ["median ULP", found.ulpMedian], ["largest ULP", found.ulpMax],
      ["rtol", found.rtol], ["atol", found.atol], ["condition", found.condition], ["metric", found.metric],
    ].filter(([, value]) => value !== null);
    const pairs = [["compared", found.verdict], ...numbers.map(([name, value]) => [name, Report.error(value)])];
    const why = [found.reason, ...found.notes].filter(Boolean).map((words) => element("p", { class: "remark" }, words));
    const spreads = launch.id === data.comparison.first_wrong ? [] : data.comparison.spreads[launch.id] ?? []; // the first one is shown above
    return [Report.pairs(pairs), ...why, ...spreads.map(Report.spread)];
  }

  function stacks(site) {
    const found = site.stacks.map((index) => element("pre", { class: "code" }, element("code", {}, data.stacks[index])));
    const nodes = [...site.pre, ...site.post].length ? [element("p", {}, `nodes: ${[...new Set([...site.pre, ...site.post])].join(", ")}`)] : [];
    return folded(`Provenance: ${site.certainty}${site.handle ? `, ${site.handle}` : ""}`, ...nodes, ...found);
  }

  Report.onChoose((launch, by) => {
    const site = launch.info;
    const drawn = (launch.histograms ?? []).map((index, i) => (index === null ? null : Report.histogram(site.args[i].name, data.histograms[index]))).filter(Boolean);
    const unique = [...new Map(drawn.map((each) => [each.figure.textContent, each])).values()];
    panel.replaceChildren(...[
      element("h3", {}, element("span", { class: "launch" }, launch.id), ` ${site.kernel}`),
      element("p", { class: "marks" }, ...Report.markElements(launch.marks)),
      ...modelLines(site),
      facts(launch),
      stackOf(launch),
      ...comparison(launch),
      argumentTable(launch),
      scalars(launch),
      ...grids(launch),
      ...values(launch),
      unique.length ? element("div", { class: "histograms" }, ...unique.map((each) => each.figure)) : null,
      files(launch),
      stacks(site),
      ...sources(site),
    ].filter(Boolean));
    unique.forEach((each) => each.show());
    if (by === "graph" || by === "timeline" || by === "link") panel.scrollIntoView({ block: "nearest" });
  });
})();
