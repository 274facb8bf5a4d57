//! The result of a sweep: a table, a JSON object, or comma-separated values.

use anstream::eprintln;
use comfy_table::{Cell, Color};
use lathe_codegen::target::Target;
use lathe_runtime::bench::{Bandwidth, Protocol};
use lathe_runtime::device::DeviceInfo;
use serde::Serialize;

use super::measure::{RivalTime, Row, Time};
use crate::cli::output::println;
use crate::cli::table;

/// A sweep with what it was measured under.
pub struct Run<'a> {
    pub device: &'a DeviceInfo,
    pub target: Target,
    pub bandwidth: Bandwidth,
    pub protocol: Protocol,
    pub rows: &'a [Row],
}

/// A line for each size and kind of edges.
pub fn table(run: &Run) {
    println!("{} ({})", run.device, run.target);
    let l2 = if run.protocol.warm_l2 { "every call finds its inputs in the L2" } else { "rotating inputs" };
    println!(
        "read bandwidth {:.2} TB/s, copy {:.2} TB/s; {} replays of a graph, {l2}; us a call, median, ± half the 10-90 % range\n",
        run.bandwidth.read / 1e12,
        run.bandwidth.copy / 1e12,
        run.protocol.replays,
    );
    let mut kernels: Vec<&str> = run.rows.iter().map(|row| row.kernel.as_str()).collect();
    kernels.dedup();
    for kernel in kernels {
        println!("\x1b[1m{kernel}\x1b[0m");
        let rows: Vec<&Row> = run.rows.iter().filter(|row| row.kernel == kernel).collect();
        let rivals = rivals(&rows);
        let mut columns = vec!["size", "edges", "us", "±", "TB/s", "of read", "TFLOP/s", "model"];
        columns.extend(rivals.iter().flat_map(|name| [name.as_str(), "ratio"]));
        let mut table = table::table(&columns);
        for row in rows {
            let size = format!("{} {}", row.point, row.configuration);
            if let Some(error) = &row.error {
                table.add_row([Cell::new(size.trim_end()), Cell::new("none").fg(Color::Red)]);
                eprintln!("\x1b[1;91merror\x1b[0m\x1b[1m: {kernel} {}: {error}\x1b[0m", row.point);
            }
            for time in &row.times {
                table.add_row(cells(row, size.trim_end(), time, &rivals));
            }
        }
        println!("{table}\n");
    }
    if !run.rows.iter().all(|row| row.times.iter().all(|time| time.rivals.is_empty())) {
        println!("ratio: this kernel's time over the rival's; `recorded` where the rival's was measured elsewhere");
    }
}

/// The rivals of some rows, by their first word: configurations of one peer share a column.
fn rivals(rows: &[&Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for rival in rows.iter().flat_map(|row| &row.times).flat_map(|time| &time.rivals) {
        if !names.contains(&rival.column) {
            names.push(rival.column.clone());
        }
    }
    names
}

fn cells(row: &Row, size: &str, time: &Time, rivals: &[String]) -> Vec<Cell> {
    let model = match row.predicted_us {
        Some(us) if time.edges == "plain" => format!("{us:.1} ({:+.0} %)", (us / time.us - 1.0) * 100.0),
        _ => String::new(),
    };
    let mut cells = vec![
        Cell::new(size),
        Cell::new(time.edges),
        Cell::new(format!("{:.2}", time.us)),
        Cell::new(format!("{:.1} %", time.spread * 100.0)),
        Cell::new(format!("{:.2}", time.tb_per_s)),
        Cell::new(format!("{:.0} %", time.of_read_bandwidth * 100.0)),
        Cell::new(if time.tflop_per_s > 0.0 { format!("{:.0}", time.tflop_per_s) } else { "-".to_owned() }),
        Cell::new(model),
    ];
    for name in rivals {
        match time.rivals.iter().find(|rival| rival.column == *name) {
            None => cells.extend([Cell::new("-"), Cell::new("-")]),
            Some(RivalTime { us: Some(us), ratio: Some(ratio), ratio_spread, .. }) => {
                let spread = ratio_spread.map_or(" recorded".to_owned(), |spread| format!(" ±{:.1} %", spread * 100.0));
                cells.extend([Cell::new(format!("{us:.2}")), Cell::new(format!("{ratio:.3}{spread}"))]);
            }
            Some(RivalTime { us: Some(us), .. }) => cells.extend([Cell::new(format!("{us:.2}")), Cell::new("")]),
            Some(rival) => {
                let error = rival.error.as_deref().unwrap_or_default();
                eprintln!("\x1b[1;91merror\x1b[0m\x1b[1m: {} {}: {error}\x1b[0m", row.kernel, row.point);
                cells.extend([Cell::new("none").fg(Color::Red), Cell::new("-")]);
            }
        }
    }
    cells
}

#[derive(Serialize)]
struct Json<'a> {
    device: &'a str,
    sms: u32,
    target: &'static str,
    read_bytes_per_s: f64,
    copy_bytes_per_s: f64,
    replays: usize,
    warm_l2: bool,
    rows: &'a [Row],
}

pub fn json(run: &Run) {
    let json = Json {
        device: &run.device.name,
        sms: run.device.sms,
        target: run.target.name(),
        read_bytes_per_s: run.bandwidth.read,
        copy_bytes_per_s: run.bandwidth.copy,
        replays: run.protocol.replays,
        warm_l2: run.protocol.warm_l2,
        rows: run.rows,
    };
    println!("{}", serde_json::to_string_pretty(&json).expect("plain data serialises"));
}

#[derive(Serialize)]
struct CsvRow<'a> {
    kernel: &'a str,
    batch: u32,
    keys: u32,
    next_n: u32,
    heads: u32,
    top_k: u32,
    long_row: Option<u32>,
    captured_for: Option<u32>,
    configuration: &'a str,
    edges: &'a str,
    us: Option<f64>,
    spread: Option<f64>,
    tb_per_s: Option<f64>,
    tflop_per_s: Option<f64>,
    of_read_bandwidth: Option<f64>,
    rival: &'a str,
    rival_us: Option<f64>,
    ratio: Option<f64>,
    error: &'a str,
}

/// A line for each size, kind of edges and rival.
pub fn csv(rows: &[Row]) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(std::io::stdout());
    for row in rows {
        let size = row.size.clone();
        let line = |time: Option<&Time>, rival: Option<&RivalTime>| CsvRow {
            kernel: &row.kernel,
            batch: size.batch,
            keys: size.keys,
            next_n: size.next_n,
            heads: size.heads,
            top_k: size.top_k,
            long_row: size.long_row,
            captured_for: size.captured_for,
            configuration: &row.configuration,
            edges: "",
            us: time.map(|time| time.us),
            spread: time.map(|time| time.spread),
            tb_per_s: time.map(|time| time.tb_per_s),
            tflop_per_s: time.map(|time| time.tflop_per_s),
            of_read_bandwidth: time.map(|time| time.of_read_bandwidth),
            rival: "",
            rival_us: rival.and_then(|rival| rival.us),
            ratio: rival.and_then(|rival| rival.ratio),
            error: "",
        };
        if let Some(error) = &row.error {
            writer.serialize(CsvRow { error, ..line(None, None) })?;
        }
        for time in &row.times {
            if time.rivals.is_empty() {
                writer.serialize(CsvRow { edges: time.edges, ..line(Some(time), None) })?;
            }
            for rival in &time.rivals {
                let error = rival.error.as_deref().unwrap_or_default();
                let name = &rival.name;
                writer.serialize(CsvRow { edges: time.edges, rival: name, error, ..line(Some(time), Some(rival)) })?;
            }
        }
    }
    writer.flush()?;
    Ok(())
}
