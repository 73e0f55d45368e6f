"use strict";
// The comparison with the program: the errors along the launches, and those of the first wrong one.
(() => {
  const { data } = Report;
  const about = document.getElementById("errors-about");
  if (!about) return;
  const { areMeasured, areInherited } = Report.errors({
    launches: data.launches.filter((launch) => launch.comparison),
    verdicts: [["matches its source", "good"], ["ok", "good"], ["better than eager", "good"], ["rounding", "mild"], ["ill-conditioned", "warn"], ["differs from its source", "bad"], ["wrong", "bad"]],
    gaps: ["not comparable"],
    counts: data.comparison.counts,
    first: data.comparison.first_wrong,
    label: "≉ first wrong",
    exponents: [-20, 6],
    numbers: ({ local, inherited, eager, ulpMax }) => `local ${Report.error(local)} · inherited ${Report.error(inherited)} · eager ${Report.error(eager)} · largest ${Report.error(ulpMax)} ULP`,
  });
  if (!areMeasured) about.textContent = "No error of the launches that are shown was measured against a program.";
  else if (!areInherited) about.textContent = "Dots: the error of each launch from its own inputs, relative, root mean square. aoti-debug compare also shows what it inherited.";
  const spreads = data.comparison.spreads[data.comparison.first_wrong] ?? [];
  document.getElementById("first-wrong").append(...spreads.slice(0, 1).map(Report.spread));
})();
