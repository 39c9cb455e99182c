"use strict";
(() => {
  // Contents: open beside the text, closed above it.
  const narrow = matchMedia("(max-width: 64rem)");
  const contents = document.querySelector(".contents > details");
  const fit = () => { contents.open = !narrow.matches; };
  narrow.addEventListener("change", fit);
  fit();
  contents.addEventListener("click", (event) => {
    if (narrow.matches && event.target.closest("a")) contents.open = false;
  });

  // A link into something closed opens it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let node = target; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.hash === location.hash) setTimeout(reveal);
  });
  if (location.hash) reveal();

  // On paper nothing can be opened.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((one) => { one.open = false; }));

  // Sorting: up, down, as it was. What is not measured stays last.
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value !== undefined) return cell.dataset.value === "" ? null : +cell.dataset.value;
    return cell.textContent.trim() || null;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b, "en", { numeric: true });
  };
  const sort = (button) => {
    const heading = button.closest("th");
    const table = heading.closest("table");
    const body = table.tBodies[0];
    table.original ??= [...body.rows];
    const next = { none: "ascending", ascending: "descending", descending: "none" };
    const order = next[heading.getAttribute("aria-sort") ?? "none"];
    for (const other of heading.parentElement.cells) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", order);
    const sign = order === "descending" ? -1 : 1;
    const keyed = table.original.map((row) => [keyOf(row, heading.cellIndex), row]);
    if (order !== "none") {
      keyed.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * compare(a, b);
      });
    }
    table.classList.toggle("sorted", order !== "none");
    body.append(...keyed.map(([, row]) => row));
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("thead button");
    if (button) sort(button);
  });
})();
