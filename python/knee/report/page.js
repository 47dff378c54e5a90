// Draws the charts of the page: in the colours of the reader's scheme, at the width of their place.
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
    const key = width + (isDark ? "dark" : "light");
    if (drawn.get(place) === key) return;
    drawn.set(place, key);
    const colour = colours();
    const spec = JSON.parse(JSON.stringify(specs[place.dataset.chart]), (_, value) =>
      typeof value === "string" && value.startsWith("@") ? colour(value.slice(1)) : value);
    // Vega measures its own text, so a legend or a label that is too wide for a narrow place needs a limit to wrap or to end.
    const settings = config(colour, isDark);
    settings.axisY.labelLimit = 0.38 * width;
    if (width < 480) settings.legend = { ...settings.legend, columns: 2, titleOrient: "top" };
    const full = { $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container",
                   autosize: { type: "fit-x", contains: "padding" }, ...spec };
    await window.vegaEmbed(place, full, { actions: false, renderer: "svg", config: settings });
  }

  function drawAll() {
    document.querySelectorAll("[data-chart]").forEach((place) => {
      draw(place).catch((error) => { place.textContent = "This chart could not be drawn: " + error.message; });
    });
  }

  let pending;
  window.addEventListener("resize", () => { clearTimeout(pending); pending = setTimeout(drawAll, 150); });
  dark.addEventListener("change", drawAll);
  print.addEventListener("change", drawAll);
  document.querySelectorAll("details").forEach((details) => details.addEventListener("toggle", drawAll));
  drawAll();
})();
