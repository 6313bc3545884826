//! Plots of figures: horizontal bars as SVG, each with a mark at its limit, for light and dark pages.

use std::fmt::Write as _;

use crate::figure::{Chapter, Of, shown};

/// One bar.
pub(crate) struct Row {
    label: String,
    length: f64,
    /// The position of the limit.
    mark: Option<f64>,
    /// Whether the limit is met.
    is_met: Option<bool>,
}

/// Sizes in pixels.
const LABELS: f64 = 420.0;
const BARS: f64 = 380.0;
const NUMBERS: f64 = 60.0;
const ROW: f64 = 20.0;
const BAR: f64 = 12.0;
const TOP: f64 = 36.0;

/// Maximum length of a bar. Longer bars are cut off; their label still contains the value.
const LONGEST: f64 = 3.0;

const STYLE: &str = "\
text { font: 12px sans-serif; fill: #1f2328; }
.met { fill: #2da44e; }
.missed { fill: #cf222e; }
.free { fill: #8c959f; }
.mark { stroke: #1f2328; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .mark { stroke: #e6edf3; }
}";

/// Returns the rows of two plots: the ratios of figures with a baseline, and the values of figures with a bar for the
/// value, divided by the bar.
pub(crate) fn rows(chapters: &[Chapter]) -> (Vec<Row>, Vec<Row>) {
    let (mut ratios, mut values) = (Vec::new(), Vec::new());
    for chapter in chapters {
        for figure in &chapter.figures {
            let row = |length, mark| Row {
                label: format!("{}: {}", chapter.title, figure.name),
                length,
                mark,
                is_met: figure.is_met(),
            };
            match (figure.ratio(), figure.bar) {
                (_, Some(bar)) if bar.of == Of::Value => values.push(row(figure.value / bar.limit, Some(1.0))),
                (Some(ratio), bar) => ratios.push(row(ratio, bar.map(|bar| bar.limit))),
                (None, Some(bar)) => values.push(row(figure.value / bar.limit, Some(1.0))),
                (None, None) => {}
            }
        }
    }
    (ratios, values)
}

/// Returns the plot of these bars; `scale` is the description of their lengths. Names must not contain `<` or `&`,
/// because they are not escaped.
pub(crate) fn svg(scale: &str, rows: &[Row]) -> String {
    let ends = rows.iter().flat_map(|row| [Some(row.length), row.mark]).flatten();
    let longest = ends.fold(1.0, f64::max).min(LONGEST);
    let pixels = |length: f64| length.min(longest) / longest * BARS;
    let (width, height) = (LABELS + BARS + NUMBERS, TOP + ROW * rows.len() as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\">\n<style>\n{STYLE}\n</style>\n<text x=\"{LABELS}\" y=\"16\">{scale}</text>\n"
    );
    for (number, row) in rows.iter().enumerate() {
        let top = TOP + ROW * number as f64;
        let (text, length) = (top + BAR - 2.0, pixels(row.length));
        let class = match row.is_met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "free",
        };
        let (label, end, value) = (&row.label, LABELS + length + 6.0, shown(row.length));
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{label}</text>\
             <rect class=\"{class}\" x=\"{LABELS}\" y=\"{top}\" width=\"{length:.1}\" height=\"{BAR}\"/>\
             <text x=\"{end:.1}\" y=\"{text}\">{value}</text>",
            LABELS - 8.0
        )
        .unwrap();
        if let Some(mark) = row.mark {
            let (x, top, bottom) = (LABELS + pixels(mark), top - 2.0, top + BAR + 2.0);
            writeln!(
                svg,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>"
            )
            .unwrap();
        }
    }
    svg + "</svg>\n"
}
