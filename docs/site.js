// Gives each cell of a wide table the heading of its column, which site.css shows on a phone.
document$.subscribe(() => {
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
    const headings = [...table.querySelectorAll("thead th")].map((one) => one.textContent);
    if (headings.length < 4) continue;
    for (const row of table.tBodies[0].rows)
      [...row.cells].slice(1).forEach((cell, at) => (cell.dataset.label = headings[at + 1]));
  }
});
