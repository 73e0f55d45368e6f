"use strict";
// The errors of one tensor with elements that are wrong, or that differ between two runs: a histogram of ULP, and a map of where in the tensor they lie.
Report.spread = (() => {
  const { element, svg } = Report;
  const [SMALLEST, LARGEST] = [-2, 40]; // the exponents of two of the first and the last bin with an error
  const MARGIN = { left: 58, right: 12, top: 8, bottom: 34 };

  // What is said of a tensor by the kind of its errors; errors above `bound` are drawn as such.
  const WORDS = {
    wrong: {
      bound: 1, sizes: "how large the errors are", none: "no error", misplaced: "misplaced NaN or infinity", indices: "indices with wrong elements",
      heading: (output) => `holds ${output.value} (${output.operator}): ${output.wrong} of ${output.count} elements are wrong`,
      cell: (error) => `${error > 1 ? "wrong, " : ""}${error >= 1e300 ? "beyond any bound" : `${Report.number(error)} times what rounding explains`}`,
    },
    different: {
      bound: 0, sizes: "how large the differences are", none: "the same bytes", misplaced: "NaN in one of the runs", indices: "indices with elements that differ",
      heading: () => "",
      cell: (error, output) => (error >= 1e300 ? "NaN in one of the runs" : `differs by up to ${Report.number(error)}${output.ulp.length ? " ULP" : ""}`),
    },
  };

  const power = (exponent) => (exponent < 0 ? `1/${2 ** -exponent}` : exponent < 11 ? String(2 ** exponent) : `2^${exponent}`);
  const short = (n) => (n >= 1e6 ? `${+(n / 1e6).toPrecision(3)}M` : n >= 1e4 ? `${+(n / 1e3).toPrecision(3)}k` : String(n));

  function titled(shape, text) {
    const title = svg("title");
    title.textContent = text;
    shape.append(title);
    return shape;
  }
  function label(text, x, y, anchor) {
    const made = svg("text", { x, y, "text-anchor": anchor });
    made.textContent = text;
    return made;
  }

  function ulps({ kind, ulp, misplaced }) {
    const words = WORDS[kind];
    const bins = [...ulp, ...(misplaced ? [misplaced] : [])];
    const last = LARGEST - SMALLEST + 1;
    const names = bins.map((_, i) => (i === ulp.length ? "NaN, Inf" : i === 0 ? "0" : i === last ? `> ${power(LARGEST - 1)}` : `≤ ${power(SMALLEST + i - 1)}`));
    const [width, height] = [460, 170];
    const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    const most = Math.max(...bins, 1);
    const scale = (n) => (n ? (0.06 + 0.94 * (Math.log10(n) / Math.max(Math.log10(most), 1e-9))) * inner.height : 0);
    const step = inner.width / Math.max(bins.length, 8);
    const every = Math.ceil(52 / step);
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "histogram of errors in ULP" });
    for (const n of [1, Math.round(Math.sqrt(most)), most].filter((n, i, all) => all.indexOf(n) === i)) {
      const y = MARGIN.top + inner.height - scale(n);
      drawn.append(svg("path", { d: `M${MARGIN.left} ${y}h${inner.width}`, class: "rule" }), label(short(n), MARGIN.left - 6, y + 4, "end"));
    }
    bins.forEach((n, i) => {
      const bar = { x: MARGIN.left + i * step + 0.5, y: MARGIN.top + inner.height - scale(n), width: Math.max(step - 1, 1), height: scale(n) };
      drawn.append(titled(svg("rect", { ...bar, class: i === ulp.length ? "misplaced" : "bin" }), `${Report.count(n, "element")}: ${i === ulp.length ? words.misplaced : i ? `${names[i]} ULP` : words.none}`));
      const isLast = i === bins.length - 1;
      if (isLast || (i % every === 0 && (bins.length - 1 - i) * step > 66)) {
        const isAtEdge = isLast && i * step > inner.width - 40;
        drawn.append(label(names[i], isAtEdge ? bar.x + bar.width : bar.x + bar.width / 2, height - MARGIN.bottom + 15, isAtEdge ? "end" : "middle"));
      }
    });
    drawn.append(label("elements (log) by error in ULP", MARGIN.left, height - 3, "start"));
    return drawn;
  }

  const range = ([first, last]) => (first === last ? String(first) : `${first}–${last}`);
  const part = (cell, cells, size) => range([Math.ceil((cell * size) / cells), Math.ceil(((cell + 1) * size) / cells) - 1]);

  function map(output) {
    const { shape, rows, columns, map: cells } = output;
    const { bound, cell: described } = WORDS[output.kind];
    const [height, width] = [1, 1, ...shape].slice(-2);
    const size = { x: Math.min(Math.max(380 / columns, 5), 26), y: Math.min(Math.max(200 / rows, 5), 26) };
    const [w, h] = [columns * size.x, rows * size.y];
    const full = [MARGIN.left + Math.max(w, 250) + MARGIN.right, MARGIN.top + h + MARGIN.bottom];
    const drawn = svg("svg", { viewBox: `0 0 ${full.join(" ")}`, width: full[0], height: full[1], role: "img", "aria-label": "map of the errors over the last two dimensions" });
    const wrong = cells.filter((excess) => excess > bound).map((excess) => Math.min(Math.log10(excess), 12));
    const [least, most] = [Math.min(...wrong, 12), Math.max(...wrong, -12)];
    const depth = (excess) => (most - least < 0.05 ? 1 : (Math.min(Math.log10(excess), 12) - least) / (most - least));
    drawn.append(svg("rect", { x: MARGIN.left, y: MARGIN.top, width: w, height: h, class: "plane" }));
    cells.forEach((excess, i) => {
      if (!(excess > 0)) return;
      const [row, column] = [Math.floor(i / columns), i % columns];
      const isWrong = excess > bound;
      const share = isWrong ? 0.35 + 0.65 * depth(excess) : 0.08 + 0.35 * excess;
      const cell = { x: MARGIN.left + column * size.x, y: MARGIN.top + row * size.y, width: size.x, height: size.y };
      const where = `[${part(row, rows, height)}, ${part(column, columns, width)}]`;
      drawn.append(titled(svg("rect", { ...cell, class: isWrong ? "wrong" : "right", "fill-opacity": share.toFixed(2) }), `${where}: ${described(excess, output)}`));
    });
    drawn.append(svg("rect", { x: MARGIN.left, y: MARGIN.top, width: w, height: h, class: "frame" }));
    drawn.append(label("0", MARGIN.left, MARGIN.top + h + 14, "start"), label("0", MARGIN.left - 6, MARGIN.top + 11, "end"));
    if (columns > 1) drawn.append(label(String(width - 1), MARGIN.left + w, MARGIN.top + h + 14, columns * size.x < 40 ? "start" : "end"));
    if (rows > 1 && h > 26) drawn.append(label(String(height - 1), MARGIN.left - 6, MARGIN.top + h, "end"));
    const last = shape.length - 1;
    const axes = shape.length > 1 ? `dimension ${last - 1} down, dimension ${last} across` : "the elements across";
    drawn.append(label(axes, MARGIN.left, full[1] - 3, "start"));
    return drawn;
  }

  function places({ shape, ranges }) {
    const words = ranges.map((found, d) => {
      const all = found.length === 1 && found[0][0] === 0 && found[0][1] === shape[d] - 1;
      return element("li", {}, `dimension ${d}: `, all ? `all of ${shape[d]}` : `${found.map(range).join(", ")} of ${shape[d]}`);
    });
    return words.length ? element("ul", { class: "plain places" }, ...words) : element("p", { class: "muted" }, "a single number");
  }

  function figure(title, drawn, ...more) {
    return element("figure", {}, element("figcaption", {}, title), element("div", { class: "wide" }, drawn), ...more);
  }

  // The figures of one output.
  return (output) => {
    const kind = `${output.dtype}[${output.shape.join(",")}]`;
    const heading = element("p", { class: "output" }, element("strong", {}, output.argument), ` ${kind} ${WORDS[output.kind].heading(output)}`);
    const pictures = [
      ...(output.ulp.length ? [figure(WORDS[output.kind].sizes, ulps(output))] : []),
      figure("where they are", map(output), element("p", { class: "label" }, WORDS[output.kind].indices), places(output)),
    ];
    return element("div", { class: "spread" }, heading, element("p", { class: "element" }, output.element), element("div", { class: "pictures" }, ...pictures));
  };
})();
