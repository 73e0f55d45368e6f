"use strict";
// The boxes of a flame: a click makes one as wide as the picture, the pointer or the focus shows its facts.
(() => {
  const { boxes } = JSON.parse(document.getElementById("data").textContent);
  const elements = [...document.querySelectorAll("#flame .box")];
  const number = new Map(elements.map((element, i) => [element, i]));
  const detail = document.getElementById("detail");
  const search = document.getElementById("search");
  const children = boxes.map(() => []);
  boxes.forEach((box, i) => box.parent >= 0 && children[box.parent].push(i));
  let widest = 0; // the box that is as wide as the picture
  let focused = 0;

  const isShown = (i) => (i <= widest ? boxes[i].end > widest : i < boxes[widest].end); // it is around, or within

  function element(tag, text) {
    const made = document.createElement(tag);
    made.textContent = text;
    return made;
  }

  function describe(i) {
    const list = document.createElement("dl");
    list.className = "pairs";
    for (const [name, text] of boxes[i].facts) list.append(element("dt", name), element("dd", text));
    detail.replaceChildren(element("h3", elements[i].textContent), list);
  }

  function widen(i) {
    if (!boxes[i].width) return;
    widest = i;
    const { left, width } = boxes[i];
    boxes.forEach((box, n) => {
      const { style } = elements[n];
      elements[n].hidden = !isShown(n);
      elements[n].classList.toggle("around", n !== i && isShown(n) && n < i);
      const isAround = n <= i;
      style.left = isAround ? "0" : `${(((box.left - left) / width) * 100).toFixed(4)}%`;
      style.width = isAround ? "100%" : `${((box.width / width) * 100).toFixed(4)}%`;
    });
  }

  function focus(i) {
    elements[focused].tabIndex = -1;
    focused = i;
    elements[i].tabIndex = 0;
    elements[i].focus();
    describe(i); // a window without the focus sends no event
  }

  // The next box of the same row, to the right (1) or left (-1); the same one if there is none.
  function beside(i, step) {
    const level = elements[i].getAttribute("aria-level");
    for (let n = i + step; n >= 0 && n < boxes.length; n += step) {
      if (isShown(n) && elements[n].getAttribute("aria-level") === level) return n;
    }
    return i;
  }

  function target(i, key) {
    const below = children[i];
    if (key === "ArrowDown" && below.length) return below.reduce((a, b) => (boxes[b].width > boxes[a].width ? b : a));
    if (key === "ArrowUp") return Math.max(boxes[i].parent, 0);
    if (key === "ArrowRight") return beside(i, 1);
    if (key === "ArrowLeft") return beside(i, -1);
    if (key === "Home") return 0;
    return i;
  }

  function press(event) {
    const i = number.get(event.target);
    if (i === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") widen(i);
    else if (event.key === "Escape") widen(0);
    else if (event.key.startsWith("Arrow") || event.key === "Home") focus(target(i, event.key));
    else return;
    event.preventDefault();
  }

  function select() {
    const words = search.value.toLowerCase();
    let share = 0;
    let covered = 0; // boxes up to here are in one that was counted
    boxes.forEach((box, i) => {
      const isMatch = words !== "" && (box.title + box.facts.map((fact) => fact[1]).join(" ")).toLowerCase().includes(words);
      elements[i].classList.toggle("matched", isMatch);
      elements[i].classList.toggle("faded", words !== "" && !isMatch);
      if (isMatch && i >= covered) {
        share += box.share;
        covered = box.end;
      }
    });
    document.getElementById("matched").textContent = words ? `${(share * 100).toFixed(1)} % of a call` : "";
  }

  const flame = document.getElementById("flame");
  flame.addEventListener("keydown", press);
  flame.addEventListener("click", (event) => {
    const i = number.get(event.target);
    if (i === undefined) return;
    focus(i);
    widen(i);
  });
  for (const name of ["mouseover", "focusin"]) {
    flame.addEventListener(name, (event) => number.has(event.target) && describe(number.get(event.target)));
  }
  flame.addEventListener("mouseleave", () => describe(focused));
  document.getElementById("whole").addEventListener("click", () => widen(0));
  search.addEventListener("input", select);
  describe(0);
})();
