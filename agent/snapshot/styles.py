"""The page's style and its one script: zooming into the flame graph. Colours of Okabe and Ito."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 24px auto; max-width: 1200px; padding: 0 16px; color: #1b1b1b; }
h1 { font-size: 20px; overflow-wrap: anywhere; } h2 { font-size: 18px; margin: 28px 0 8px; }
h3 { font-size: 15px; margin: 20px 0 6px; } p { margin: 4px 0 8px; }
.findings { list-style: none; padding: 0; }
.findings li { padding: 4px 10px; border-left: 4px solid #999; margin: 4px 0; }
.findings .bad { border-color: #d55e00; background: #fdf1ea; } .findings .good { border-color: #009e73; }
.findings .bad::before { content: "! "; font-weight: bold; }
.facts { display: flex; flex-wrap: wrap; gap: 8px 28px; margin: 12px 0; } .facts b { display: block; font-size: 17px; }
table { border-collapse: collapse; margin: 4px 0 12px; } th, td { padding: 2px 12px 2px 0; text-align: left; }
th { font-weight: 600; border-bottom: 1px solid #bbb; }
td { overflow-wrap: anywhere; } td:first-child { min-width: 130px; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; } .marked td { font-weight: bold; }
.columns { display: flex; flex-wrap: wrap; gap: 0 36px; } .columns > div { flex: 1 1 420px; min-width: 0; }
svg { display: block; } svg text { font: 11px ui-monospace, monospace; fill: #1b1b1b; pointer-events: none; }
.map text { font-size: 10px; fill: #444; } .map rect { stroke: #fff; stroke-width: .4; }
.a { fill: #0072b2; } .w { fill: #e69f00; } .f { fill: #dcdcdc; } .m { fill: #56b4e9; }
.map rect:hover, .flame g:hover rect { stroke: #000; stroke-width: 1; }
.flame g { cursor: pointer; }
.t0 { fill: #f0c05a; } .t1 { fill: #f5d48a; } .t2 { fill: #eab24a; } .t3 { fill: #f8e0ac; }
.legend i { display: inline-block; width: 12px; height: 12px; margin: 0 4px 0 10px; vertical-align: -1px; }
.legend i:first-child { margin-left: 0; }
i.a { background: #0072b2; } i.w { background: #e69f00; } i.f { background: #dcdcdc; } i.m { background: #56b4e9; }
"""

SCRIPT = """
"use strict";
for (const svg of document.querySelectorAll("svg.flame")) {
  const width = svg.viewBox.baseVal.width, boxes = [...svg.querySelectorAll("g")];
  let from = 0, span = width;
  const draw = () => {
    for (const box of boxes) {
      const left = Number(box.dataset.x), wide = Number(box.dataset.w), end = left + wide;
      const gone = end <= from + 1e-6 || left >= from + span - 1e-6;
      box.style.display = gone ? "none" : "";
      if (gone) continue;
      const x = Math.max(0, (left - from) / span * width);
      const w = Math.min(width, (end - from) / span * width) - x;
      const rect = box.firstElementChild, text = box.lastElementChild;
      rect.setAttribute("x", x);
      rect.setAttribute("width", Math.max(0.2, w - 0.4));
      text.setAttribute("x", x + 3);
      const fits = Math.floor(w / 6.4) - 1, label = box.dataset.l;
      text.textContent = label.length <= fits ? label : fits > 3 ? label.slice(0, fits - 1) + "\\u2026" : "";
    }
  };
  for (const box of boxes) box.addEventListener("click", () => {
    const left = Number(box.dataset.x), wide = Number(box.dataset.w);
    const same = Math.abs(left - from) < 1e-6 && Math.abs(wide - span) < 1e-6;
    from = same ? 0 : left;
    span = same ? width : wide;
    draw();
  });
}
"""
