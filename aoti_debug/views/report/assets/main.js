"use strict";
// What is open at the start, links to launches, buttons.
(() => {
  const { data } = Report;
  const asked = () => decodeURIComponent(/^#launch=(.+)$/.exec(location.hash)?.[1] ?? "");

  function follow() {
    if (Report.byId.has(asked())) Report.choose(asked(), "link");
  }
  window.addEventListener("hashchange", follow);
  follow();
  if (!Report.chosen() && data.launches.length) {
    const gravest = Report.marks.map((mark) => data.launches.find((x) => x.marks.includes(mark.name))).find(Boolean);
    Report.choose((gravest ?? data.launches[0]).id, "start");
  }
  document.querySelectorAll("a.launch").forEach((link) => link.addEventListener("click", () => setTimeout(follow)));

  document.querySelectorAll("button.copy").forEach((button) => {
    button.addEventListener("click", async () => {
      const done = await navigator.clipboard.writeText(button.dataset.copy).then(() => "copied", () => "select it by hand");
      button.textContent = done;
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
  });
})();
