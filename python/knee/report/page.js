// Draws the charts of the page: in the colours of the reader's scheme, at the width of their place. Saves figures as
// SVG, and their data as CSV.
(() => {
  "use strict";
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const categories = {
    light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#5b5b5b", "#7a3fb5", "#b8336a", "#4b6b1f"],
    dark: ["#56b4e9", "#ff9a5c", "#2fc79a", "#e39cc6", "#f0e442", "#9ab0ff", "#c0c0c0", "#c79bff", "#ff86ad", "#a8d06a"],
  };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const print = window.matchMedia("print");
  const drawn = new Map();

  function colours() {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue("--" + name).trim();
  }

  function config(colour, isDark) {
    const font = getComputedStyle(document.body).fontFamily;
    const text = { labelColor: colour("muted"), titleColor: colour("ink"), labelFont: font, titleFont: font };
    return {
      background: null,
      font,
      view: { stroke: null },
      axis: { ...text, titleFontWeight: 500, titleFontSize: 12, labelFontSize: 11.5, gridColor: colour("line"),
              gridOpacity: 0.8, domainColor: colour("muted"), tickColor: colour("muted") },
      axisX: { grid: false }, axisY: { domain: false, ticks: false, tickCount: 5, minExtent: 40 },
      legend: { ...text, orient: "top", titleOrient: "left", titleFontWeight: 500, titleFontSize: 12, labelFontSize: 11.5, symbolStrokeWidth: 2, columns: 5 },
      text: { fontSize: 11.5 },
      range: { category: categories[isDark ? "dark" : "light"] },
      mark: { color: colour("series") }, rule: { color: colour("series") },
      bar: { discreteBandSize: { band: 0.8 } },
    };
  }

  async function draw(place) {
    const width = place.clientWidth;
    if (!width) return; // within a closed <details>: drawn when it opens
    const isDark = dark.matches && !print.matches;
    const zoomed = place.closest(".zoomed") !== null;
    const key = width + (isDark ? "dark" : "light") + (zoomed ? window.innerHeight : "");
    if (drawn.get(place) === key) return;
    drawn.set(place, key);
    const colour = colours();
    const spec = JSON.parse(JSON.stringify(specs[place.dataset.chart]), (_, value) =>
      typeof value === "string" && value.startsWith("@") ? colour(value.slice(1)) || value : value);
    // Vega measures its own text, so a legend or a label that is too wide for a narrow place needs a limit to wrap or to end.
    const settings = config(colour, isDark);
    settings.axisY.labelLimit = 0.38 * width;
    if (width < 480) settings.legend = { ...settings.legend, columns: 2, titleOrient: "top" };
    const full = { $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container",
                   autosize: { type: "fit-x", contains: "padding" }, ...spec };
    if (zoomed && full.height > 0) full.height = Math.max(full.height, 0.65 * window.innerHeight);
    const { view } = await window.vegaEmbed(place, full, { actions: false, renderer: "svg", config: settings });
    offer(place.closest("figure"), place.dataset.chart, () => view.toSVG(), () => dataOf(specs[place.dataset.chart]));
  }

  // The buttons of a figure; a figure that is drawn again gets new ones.
  function offer(figure, name, svg, rows) {
    const caption = figure.querySelector("figcaption");
    caption.querySelector(".save")?.remove();
    const place = caption.appendChild(document.createElement("span"));
    place.className = "save";
    const wider = place.appendChild(document.createElement("button"));
    wider.textContent = "⤢";
    wider.title = "Enlarge or shrink this figure";
    wider.addEventListener("click", () => zoom(figure));
    const paper = (text) => text.replace("<svg ", `<svg style="background: ${colours()("panel")}" `);
    for (const [format, type, text] of [
      ["SVG", "image/svg+xml", async () => paper(await svg())],
      ["CSV", "text/csv", async () => rows().map((row) => row.map(quoted).join(",") + "\n").join("")],
    ]) {
      const button = place.appendChild(document.createElement("button"));
      button.textContent = format;
      button.title = format === "SVG" ? "Save this figure" : "Save the numbers of this figure";
      button.addEventListener("click", async () => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([await text()], { type }));
        link.download = `${name}.${format.toLowerCase()}`;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      });
    }
  }

  // A figure over the whole window, or in its place again.
  function zoom(figure) {
    figure.classList.toggle("zoomed");
    drawAll();
  }

  function quoted(value) {
    const text = String(value ?? "");
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  // A header and the rows of all layers of a chart. Numbers that stand for names on an axis or in a menu become names.
  function dataOf(spec) {
    const parts = new Set();
    const names = {};
    (function collect(part) {
      if (part.data?.values) parts.add(JSON.stringify(part.data.values));
      const x = part.encoding?.x;
      const labels = x?.axis?.labelExpr?.match(/^(\[.*\])\[datum\.value\]$/s);
      if (labels) names[x.field] = JSON.parse(labels[1]);
      for (const { bind } of part.params ?? [])
        if (bind?.labels) names.point = Object.fromEntries(bind.options.map((point, i) => [point, bind.labels[i]]));
      for (const inner of [...(part.layer ?? []), ...(part.hconcat ?? []), ...(part.vconcat ?? [])]) collect(inner);
      if (part.spec) collect(part.spec);
    })(spec);
    const rows = [...parts].flatMap((part, i) => JSON.parse(part).map((row) => (parts.size > 1 ? { layer: i + 1, ...row } : row)));
    const fields = [...new Set(rows.flatMap(Object.keys))];
    return [fields, ...rows.map((row) => fields.map((field) => names[field]?.[row[field]] ?? row[field]))];
  }

  // The diagrams that the page has from the start, each before the table of its numbers.
  function offerDiagrams() {
    document.querySelectorAll("figure svg").forEach((svg, i) => {
      const figure = svg.closest("figure");
      const coloured = () => new XMLSerializer().serializeToString(svg).replaceAll(/var\(--(\w+)\)/g, (_, name) => colours()(name));
      const rows = () => [...figure.nextElementSibling.querySelectorAll("tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
      offer(figure, `stages-${i}`, coloured, rows);
    });
  }

  function drawAll() {
    document.querySelectorAll("[data-chart]").forEach((place) => {
      draw(place).catch((error) => { place.textContent = "This chart could not be drawn: " + error.message; });
    });
  }

  // All <details> by name. Several have the same summary.
  window.folds = () => {
    const named = new Map();
    for (const summary of document.querySelectorAll("summary")) {
      let name = summary.closest("section").id + summary.textContent;
      while (named.has(name)) name += "+";
      named.set(name, summary.parentElement);
    }
    return named;
  };

  // The reader's place before live.js read the page again.
  function restore({ top, heights, open }) {
    history.replaceState(null, "");
    history.scrollRestoration = "auto";
    for (const [name, details] of window.folds()) details.open = open.includes(name);
    // The charts are drawn later: without their heights, the place would move.
    for (const place of document.querySelectorAll("[data-chart]")) place.style.minHeight = `${heights[place.dataset.chart] ?? 0}px`;
    scrollTo(0, top);
  }

  document.addEventListener("click", (event) => {
    const figure = event.target.closest?.(".chart svg")?.closest("figure");
    if (figure) zoom(figure);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.querySelectorAll(".zoomed").forEach(zoom);
  });

  let pending;
  window.addEventListener("resize", () => { clearTimeout(pending); pending = setTimeout(drawAll, 150); });
  dark.addEventListener("change", drawAll);
  print.addEventListener("change", drawAll);
  document.querySelectorAll("details").forEach((details) => details.addEventListener("toggle", drawAll));
  if (history.state) restore(history.state);
  offerDiagrams();
  drawAll();
})();
