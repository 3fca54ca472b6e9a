//! Lines over time as an SVG picture with title, axes and a legend. Knows nothing of allocators; pure.
//!
//! The same SVG is the published picture and the source of the PNG, so both look alike everywhere: text is drawn
//! with widely available sans-serif fonts and never decides where a line goes.

use std::fmt::Write;

/// A picture: lines in one plane.
pub struct Chart {
    pub title: String,
    pub subtitle: String,
    pub x_title: String,
    pub y_title: String,
    pub footer: String,
    /// Headings of the two columns of values.
    pub legend_titles: [String; 2],
    pub series: Vec<Series>,
}

/// One allocator in the picture: a main line, thinner lines for its other runs, and its legend.
pub struct Series {
    pub name: String,
    /// Small lines below the name.
    pub details: Vec<String>,
    /// What stands at the right of the name, in two columns.
    pub values: [String; 2],
    pub colour: &'static str,
    /// SVG dash pattern; empty for a solid line.
    pub dash: &'static str,
    pub emphasised: bool,
    pub line: Vec<(f64, f64)>,
    pub faint_lines: Vec<Vec<(f64, f64)>>,
}

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 78.0;
const TOP: f64 = 88.0;
const PLOT_WIDTH: f64 = 720.0;
const PLOT_HEIGHT: f64 = 420.0;
const LEGEND: f64 = LEFT + PLOT_WIDTH + 32.0;
const FONT: &str = "'Noto Sans', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";
const INK: &str = "#212529";
const GREY: &str = "#868e96";
const GRID: &str = "#e9ecef";

/// Characters of the small font that fit beside the plot.
pub const LEGEND_CHARACTERS: usize = 36;

impl Chart {
    /// Draws the chart.
    pub fn to_svg(&self) -> String {
        let all = || {
            self.series.iter().flat_map(|s| s.faint_lines.iter().chain(std::iter::once(&s.line))).flatten()
        };
        let x_axis = Axis::new(all().map(|point| point.0).fold(0.0, f64::max), 8);
        let y_axis = Axis::new(all().map(|point| point.1).fold(0.0, f64::max) * 1.04, 6);
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"{FONT}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        svg.push_str(&text(LEFT, 38.0, 21, "start", INK, true, &self.title));
        svg.push_str(&text(LEFT, 62.0, 13, "start", GREY, false, &self.subtitle));
        self.draw_axes(&mut svg, &x_axis, &y_axis);
        let place = |point: &(f64, f64)| {
            (LEFT + point.0 / x_axis.end * PLOT_WIDTH, TOP + PLOT_HEIGHT - point.1 / y_axis.end * PLOT_HEIGHT)
        };
        // Emphasised lines last: they lie on top.
        for emphasised in [false, true] {
            for series in self.series.iter().filter(|series| series.emphasised == emphasised) {
                for line in &series.faint_lines {
                    svg.push_str(&series.polyline(line, &place, 1.0, 0.28));
                }
                svg.push_str(&series.polyline(&series.line, &place, if emphasised { 3.4 } else { 1.9 }, 1.0));
            }
        }
        self.draw_legend(&mut svg);
        svg.push_str(&text(LEFT, HEIGHT - 16.0, 11, "start", GREY, false, &self.footer));
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_axes(&self, svg: &mut String, x_axis: &Axis, y_axis: &Axis) {
        let bottom = TOP + PLOT_HEIGHT;
        for tick in y_axis.ticks() {
            let y = bottom - tick / y_axis.end * PLOT_HEIGHT;
            let colour = if tick == 0.0 { "#adb5bd" } else { GRID };
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\"/>",
                LEFT + PLOT_WIDTH
            );
            svg.push_str(&text(LEFT - 10.0, y + 4.5, 13, "end", "#495057", false, &y_axis.label(tick)));
        }
        for tick in x_axis.ticks() {
            let x = LEFT + tick / x_axis.end * PLOT_WIDTH;
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{bottom:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#adb5bd\"/>",
                bottom + 5.0
            );
            svg.push_str(&text(x, bottom + 21.0, 13, "middle", "#495057", false, &x_axis.label(tick)));
        }
        let middle = LEFT + PLOT_WIDTH / 2.0;
        svg.push_str(&text(middle, bottom + 44.0, 13, "middle", INK, false, &self.x_title));
        let _ = writeln!(
            svg,
            "<g transform=\"translate(22 {:.1}) rotate(-90)\">{}</g>",
            TOP + PLOT_HEIGHT / 2.0,
            text(0.0, 0.0, 13, "middle", INK, false, &self.y_title).trim_end()
        );
    }

    fn draw_legend(&self, svg: &mut String) {
        let columns = [WIDTH - 90.0, WIDTH - 24.0];
        let mut y = TOP + 8.0;
        for (right, title) in columns.iter().zip(&self.legend_titles) {
            svg.push_str(&text(*right, y, 12, "end", GREY, false, title));
        }
        y += 24.0;
        for series in &self.series {
            let width = if series.emphasised { 4.0 } else { 2.4 };
            let _ = writeln!(
                svg,
                "<line x1=\"{LEGEND}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\" stroke-width=\"{width}\"{}/>",
                y - 4.5,
                LEGEND + 26.0,
                y - 4.5,
                series.colour,
                dash(series.dash)
            );
            let bold = series.emphasised;
            svg.push_str(&text(LEGEND + 36.0, y, 14, "start", INK, bold, &series.name));
            for (right, value) in columns.iter().zip(&series.values) {
                svg.push_str(&text(*right, y, 14, "end", INK, bold, value));
            }
            for line in &series.details {
                y += 16.0;
                svg.push_str(&text(LEGEND + 36.0, y, 11, "start", GREY, false, line));
            }
            y += 27.0;
        }
    }
}

impl Series {
    fn polyline(
        &self,
        line: &[(f64, f64)],
        place: &impl Fn(&(f64, f64)) -> (f64, f64),
        width: f64,
        opacity: f64,
    ) -> String {
        let points: Vec<(f64, f64)> = line.iter().map(place).collect();
        let points = thin_out(&points);
        let coordinates: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        format!(
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" stroke-opacity=\"{opacity}\" \
             stroke-linejoin=\"round\"{} points=\"{}\"/>\n",
            self.colour,
            if opacity < 1.0 { String::new() } else { dash(self.dash) },
            coordinates.join(" ")
        )
    }
}

fn dash(pattern: &str) -> String {
    if pattern.is_empty() {
        String::new()
    } else {
        format!(" stroke-dasharray=\"{pattern}\"")
    }
}

/// At most four points for each pixel column: first, lowest, highest, last. What was to be seen stays.
fn thin_out(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for column in points.chunk_by(|left, right| left.0.floor() == right.0.floor()) {
        if column.len() <= 4 {
            kept.extend(column);
            continue;
        }
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let mut chosen = vec![column[0], column[column.len() - 1]];
        chosen.extend(column.iter().min_by(by_height));
        chosen.extend(column.iter().max_by(by_height));
        chosen.sort_by(|a, b| a.0.total_cmp(&b.0));
        kept.extend(chosen);
    }
    kept
}

fn text(x: f64, y: f64, size: u32, anchor: &str, colour: &str, bold: bool, content: &str) -> String {
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\"{weight}>{}</text>\n",
        escape(content)
    )
}

fn escape(content: &str) -> String {
    let mut escaped = String::with_capacity(content.len());
    for c in content.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Not allowed in XML at all.
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// An axis from zero with round steps.
struct Axis {
    end: f64,
    step: f64,
}

impl Axis {
    /// An axis that reaches `largest` in about `steps` round steps.
    fn new(largest: f64, steps: usize) -> Axis {
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let rough = largest / steps as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
        Axis { end: largest, step: step.unwrap_or(rough) }
    }

    fn ticks(&self) -> Vec<f64> {
        let count = (self.end / self.step * (1.0 + 1e-9)).floor() as usize;
        (0..=count).map(|index| index as f64 * self.step).collect()
    }

    fn label(&self, tick: f64) -> String {
        let digits = (0..=6).find(|digits| {
            let scaled = self.step * 10f64.powi(*digits);
            (scaled - scaled.round()).abs() < 1e-6 * scaled
        });
        format!("{tick:.*}", digits.unwrap_or(6) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_steps() {
        let axis = Axis::new(389.0, 6);
        assert_eq!(axis.ticks(), [0.0, 100.0, 200.0, 300.0]);
        assert_eq!(axis.label(100.0), "100");
        let small = Axis::new(0.9, 8);
        assert_eq!(small.label(small.step), "0.2");
        assert_eq!(Axis::new(0.0, 5).end, 1.0);
        assert_eq!(Axis::new(2.0, 8).label(0.25), "0.25");
    }

    #[test]
    fn peaks_survive_thinning() {
        let points: Vec<(f64, f64)> =
            (0..1000).map(|i| (i as f64 / 1000.0, if i == 500 { -50.0 } else { 1.0 })).collect();
        let thin = thin_out(&points);
        assert!(thin.len() <= 4);
        assert!(thin.contains(&(0.5, -50.0)));
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b & \"c\"\u{7}"), "a&lt;b &amp; &quot;c&quot; ");
    }
}
