//! Time against keys: a panel for each kernel, a colour for each batch, the roofline below, rivals beside.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::measure::{Row, Time};
use super::report::Run;

/// Size of a panel.
const PANEL: (u32, u32) = (860, 560);

/// Room for the legend beside a panel's axes.
const LEGEND: i32 = 250;

const TEXT: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(228, 228, 228);

/// Colours that stay apart for most eyes, in the order of the batches.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(110, 80, 160),
    RGBColor(100, 100, 100),
];

/// One kernel's lines.
struct Panel<'a> {
    kernel: &'a str,
    edges: &'static str,
    lines: Vec<Line>,
}

/// The points of one batch.
#[derive(Default)]
struct Line {
    label: String,
    own: Vec<(f64, f64)>,
    roofline: Vec<(f64, f64)>,
    rivals: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Draws the sweep as SVG.
pub fn draw(run: &Run, path: &Path) -> Result<(), String> {
    let panels = panels(run);
    let height = PANEL.1 * panels.len().max(1) as u32;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (PANEL.0, height)).into_drawing_area();
        root.fill(&WHITE).map_err(|error| error.to_string())?;
        for (panel, area) in panels.iter().zip(root.split_evenly((panels.len().max(1), 1))) {
            draw_panel(panel, run, &area).map_err(|error| error.to_string())?;
        }
        root.present().map_err(|error| error.to_string())?;
    }
    std::fs::write(path, text).map_err(|error| error.to_string())
}

fn panels<'a>(run: &'a Run) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel> = Vec::new();
    for row in run.rows {
        // Programmatic edges where they were timed: that is how a step runs.
        let Some(time) = row.times.last() else { continue };
        let place = panels.iter().position(|panel| panel.kernel == row.kernel).unwrap_or_else(|| {
            panels.push(Panel { kernel: &row.kernel, edges: time.edges, lines: Vec::new() });
            panels.len() - 1
        });
        let lines = &mut panels[place].lines;
        let label = label(row);
        let place = lines.iter().position(|line| line.label == label).unwrap_or_else(|| {
            lines.push(Line { label, ..Line::default() });
            lines.len() - 1
        });
        add(&mut lines[place], row, time);
    }
    for line in panels.iter_mut().flat_map(|panel| &mut panel.lines) {
        for points in [&mut line.own, &mut line.roofline].into_iter().chain(line.rivals.values_mut()) {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
    }
    panels
}

fn add(line: &mut Line, row: &Row, time: &Time) {
    let keys = f64::from(row.point.keys);
    line.own.push((keys, time.us));
    // The time at the measured read bandwidth.
    line.roofline.push((keys, time.us * time.of_read_bandwidth));
    for rival in &time.rivals {
        if let Some(us) = rival.us {
            line.rivals.entry(rival.column.clone()).or_default().push((keys, us));
        }
    }
}

/// What a line has in common: everything but the keys.
fn label(row: &Row) -> String {
    row.point.to_string().split(' ').filter(|part| !part.starts_with("keys=")).collect::<Vec<_>>().join(" ")
}

type Fallible = Result<(), Box<dyn std::error::Error>>;

fn draw_panel(panel: &Panel, run: &Run, area: &DrawingArea<SVGBackend, Shift>) -> Fallible {
    let all = || panel.lines.iter().flat_map(|l| l.own.iter().chain(&l.roofline).chain(l.rivals.values().flatten()));
    let (left, right) = bounds(all().map(|point| point.0));
    let (_, top) = bounds(all().map(|point| point.1));
    // The roofline of launch-bound sizes is far below anything that can be reached.
    let (bottom, _) =
        bounds(panel.lines.iter().flat_map(|l| l.own.iter().chain(l.rivals.values().flatten())).map(|p| p.1));

    area.titled(panel.kernel, ("sans-serif", 20, FontStyle::Bold).into_font().color(&TEXT))?;
    let note = format!(
        "{}, {} edges, {}; dashed: bytes at the measured {:.2} TB/s",
        run.device.name,
        panel.edges,
        if run.protocol.warm_l2 { "inputs warm in the L2" } else { "rotating inputs" },
        run.bandwidth.read / 1e12
    );
    area.draw(&Text::new(note, (70, 32), ("sans-serif", 13).into_font().color(&TEXT)))?;
    let mut chart = ChartBuilder::on(area)
        .margin_top(58)
        .margin_right(LEGEND)
        .margin_left(12)
        .margin_bottom(8)
        .x_label_area_size(44)
        .y_label_area_size(58)
        .build_cartesian_2d(
            (left / 1.15..right * 1.15).log_scale().with_key_points(keys(panel)),
            (bottom / 1.6..top * 1.4).log_scale().with_key_points(steps(bottom / 1.6, top * 1.4)),
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(GRID)
        .axis_style(TEXT)
        .x_desc(if panel.kernel.contains("store") { "rows" } else { "keys of a request" })
        .y_desc("us a call")
        .x_label_formatter(&|keys| format!("{keys:.0}"))
        .y_label_formatter(&|us| format!("{us}"))
        .label_style(("sans-serif", 13, &TEXT))
        .axis_desc_style(("sans-serif", 14, &TEXT))
        .draw()?;

    let mut legend: Vec<(String, RGBColor)> = Vec::new();
    let mut names: Vec<&String> = panel.lines.iter().flat_map(|line| line.rivals.keys()).collect();
    names.sort();
    names.dedup();
    for (line, colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
        let inside: Vec<_> = line.roofline.iter().copied().filter(|point| point.1 >= bottom / 1.6).collect();
        if let [only] = inside[..] {
            let tick = PathElement::new([(-12, 0), (12, 0)], colour.stroke_width(1));
            chart.draw_series([EmptyElement::at(only) + tick])?;
        }
        chart.draw_series(DashedLineSeries::new(inside, 4, 4, colour.mix(0.7).stroke_width(1)))?;
        for points in line.rivals.values() {
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.mix(0.45).stroke_width(1)))?;
        }
        chart.draw_series(LineSeries::new(line.own.iter().copied(), colour.stroke_width(2)))?;
        chart.draw_series(line.own.iter().map(|at| EmptyElement::at(*at) + disc((0, 0), *colour)))?;
        // Outlines, so that a rival as fast as the kernel hides nothing.
        for (name, points) in &line.rivals {
            let which = names.iter().position(|known| *known == name).unwrap_or(0);
            chart.draw_series(points.iter().map(|at| EmptyElement::at(*at) + outline(which, (0, 0), *colour)))?;
        }
        legend.push((line.label.clone(), *colour));
    }

    let (x, mut y) = (PANEL.0 as i32 - LEGEND + 22, 74);
    let label = |text: &str, y| Text::new(text.to_owned(), (x + 34, y), ("sans-serif", 14).into_font().color(&TEXT));
    for (text, colour) in &legend {
        area.draw(&PathElement::new([(x, y + 7), (x + 26, y + 7)], colour.stroke_width(3)))?;
        area.draw(&label(text, y))?;
        y += 22;
    }
    y += 10;
    area.draw(&disc((x + 13, y + 7), TEXT))?;
    area.draw(&label("this kernel", y))?;
    y += 22;
    for (which, name) in names.iter().enumerate() {
        area.draw(&outline(which, (x + 13, y + 7), TEXT))?;
        area.draw(&label(name, y))?;
        y += 22;
    }
    for dash in [0, 10, 20] {
        area.draw(&PathElement::new([(x + dash, y + 7), (x + dash + 6, y + 7)], TEXT.stroke_width(1)))?;
    }
    area.draw(&label("roofline: read bandwidth", y))?;
    Ok(())
}

/// The smallest and the largest, or something to draw an empty panel with.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .fold(None, |bounds, v| bounds.map_or(Some((v, v)), |(a, b): (f64, f64)| Some((a.min(v), b.max(v)))))
        .unwrap_or((1.0, 10.0))
}

/// A point of the kernel itself.
fn disc(at: (i32, i32), colour: RGBColor) -> Circle<(i32, i32), i32> {
    Circle::new(at, 4, colour.filled())
}

/// A point of a rival: another outline for each.
fn outline(which: usize, (x, y): (i32, i32), colour: RGBColor) -> PathElement<(i32, i32)> {
    let sides = [4, 3, 5, 6][which % 4];
    let points = (0..=sides).map(|i| {
        let angle = std::f64::consts::TAU * f64::from(i) / f64::from(sides) - std::f64::consts::FRAC_PI_2;
        (x + (7.0 * angle.cos()).round() as i32, y + (7.0 * angle.sin()).round() as i32)
    });
    PathElement::new(points.collect::<Vec<_>>(), colour.stroke_width(1))
}

/// The keys that were measured.
fn keys(panel: &Panel) -> Vec<f64> {
    let mut keys: Vec<f64> = panel.lines.iter().flat_map(|line| line.own.iter().map(|point| point.0)).collect();
    keys.sort_by(f64::total_cmp);
    keys.dedup();
    keys
}

/// 1, 2, 5, 10, 20, 50, ... from `least` to `most`.
fn steps(least: f64, most: f64) -> Vec<f64> {
    (-3..9)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
        .filter(|step| (least..=most).contains(step))
        .collect()
}

#[cfg(test)]
mod tests {
    use lathe_codegen::benchmark::Size;
    use lathe_codegen::target::Target;
    use lathe_runtime::bench::{Bandwidth, Protocol};
    use lathe_runtime::device::DeviceInfo;

    use super::*;
    use crate::cli::bench::measure::RivalTime;

    fn row(kernel: &str, batch: u32, keys: u32, us: f64) -> Row {
        let mut row = Row::new(kernel, Size::new(batch, keys));
        let rivals = vec![RivalTime::alone("hand-written".into(), "hand-written a=1".into(), us * 0.9)];
        row.times.push(Time {
            edges: "pdl",
            us,
            spread: 0.0,
            tb_per_s: 1.0,
            tflop_per_s: 1.0,
            of_read_bandwidth: 0.7,
            rivals,
        });
        row
    }

    #[test]
    fn every_batch_and_every_rival_is_named_and_a_size_without_a_time_is_left_out() {
        let device = DeviceInfo { name: "Card".into(), capability: (9, 0), memory: 0, sms: 132 };
        let mut rows = vec![row("a", 1, 1_024, 2.0), row("a", 1, 4_096, 3.0), row("a", 64, 1_024, 20.0)];
        rows.push(Row::new("b", Size::new(1, 64)));
        let run = Run {
            device: &device,
            target: Target::Sm90a,
            bandwidth: Bandwidth { read: 4.27e12, copy: 4e12 },
            protocol: Protocol::default(),
            rows: &rows,
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times.svg");
        draw(&run, &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for expected in ["B=1", "B=64", "hand-written", "this kernel", "4.27 TB/s", "us a call", "1024", "4096"] {
            assert!(text.contains(expected), "{expected}");
        }
        assert_eq!(text.matches("B=1\n").count(), 1, "the batch of the panel without times is not listed");
        let nowhere = folder.path().join("no/such/folder.svg");
        assert!(draw(&run, &nowhere).is_err());
    }
}
