// Reads the page again while its measurement goes on; page.js then finds the reader's place in the history.
{
  const refreshS = Number(document.currentScript.dataset.refreshS);
  setInterval(() => {
    // An unseen page takes no processor time from the measurement, and a page in use stays.
    if (document.hidden || document.querySelector(".zoomed, select:focus")) return;
    const places = [...document.querySelectorAll("[data-chart]")];
    const heights = Object.fromEntries(places.map((place) => [place.dataset.chart, place.offsetHeight]));
    const open = [...window.folds()].filter(([, details]) => details.open).map(([name]) => name);
    history.replaceState({ top: scrollY, heights, open }, "");
    history.scrollRestoration = "manual";
    location.reload();
  }, 1000 * refreshS);
}
