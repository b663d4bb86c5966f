// Charts in the page's colours; each is drawn when it is about to be seen.
"use strict";
(() => {
  const light = ["#1d4ed8", "#c2410c", "#15803d", "#9333ea", "#b91c1c", "#0e7490", "#a16207", "#be185d", "#475569", "#4d7c0f"];
  const dark = ["#8ab4ff", "#fdba74", "#86efac", "#d8b4fe", "#fca5a5", "#67e8f9", "#fde047", "#f9a8d4", "#cbd5e1", "#bef264"];

  function themed(chart) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const isDark = document.documentElement.dataset.theme === "dark";
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--faint"), linecolor: colour("--line") };
    const layout = structuredClone(chart.layout);
    const name = (side, otherwise) => chart.layout[side].title?.text || otherwise;
    for (const name of ["xaxis", "yaxis"]) layout[name] = { ...axis, ...layout[name] };
    Object.assign(layout, {
      colorway: isDark ? dark : light,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--text"), size: 13 },
      margin: { l: 60, r: 20, t: 16, b: 50 },
      legend: { font: { size: 12 } },
    });
    const data = chart.data.map((trace) => {
      if (trace.type !== "heatmap") return trace;
      const longer = { "~": "<", "!": ">", " ": "&", '"': "'" };  // as site/charts.py wrote them
      const z = trace.shades.map((row) =>
        [...row].map((shade) => ((longer[shade] || shade).charCodeAt(0) - trace.zero) * trace.unit));
      const most = Math.max(...z.flat().map(Math.abs), trace.unit);
      const ends = isDark ? ["#11161d", "#8ab4ff"] : ["#ffffff", "#14357e"];
      const signed = isDark
        ? [[0, "#8ab4ff"], [0.5, "#11161d"], [1, "#fca5a5"]]
        : [[0, "#14357e"], [0.5, "#ffffff"], [1, "#a31621"]];
      const words = (value) => {
        const isEnd = trace.beyond && Math.abs(value) >= most;
        return (isEnd ? (value < 0 ? "≤ " : "≥ ") : "") + Number(value.toPrecision(2));
      };
      return {
        type: "heatmap",
        z, text: z.map((row) => row.map(words)), x0: trace.first, y0: trace.first, dx: trace.step, dy: trace.step,
        zmin: trace.signed ? -most : 0, zmax: most,
        colorscale: trace.signed ? signed : [[0, ends[0]], [1, ends[1]]],
        colorbar: { thickness: 12 },
        hovertemplate: `${name("xaxis", "x")} %{x}, ${name("yaxis", "y")} %{y}: %{text}<extra></extra>`,
      };
    });
    return [data, layout];
  }

  const config = { displayModeBar: false, responsive: true };
  window.drawChart = (element, chart) => {
    element.chart = chart;
    return Plotly.react(element, ...themed(chart), config);
  };

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      window.drawChart(entry.target, JSON.parse(document.getElementById(entry.target.dataset.chart).textContent));
    }
  }, { rootMargin: "200px" });
  for (const element of document.querySelectorAll(".chart[data-chart]")) seen.observe(element);

  document.addEventListener("theme", () => {
    for (const element of document.querySelectorAll(".chart")) {
      if (element.chart) window.drawChart(element, element.chart);
    }
  });
})();
