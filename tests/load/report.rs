//! Results for readers: tables in Markdown, and the page of the documentation.

use std::{env, fmt::Write as _, fs, path::Path, thread};

use crate::{
    figure::{Chapter, Figure, Of, Side, shown},
    plot,
};

/// `--write` replaces the text between this line and [`END`]. The rest of the page is written by hand.
const BEGIN: &str = "<!-- begin: written by cargo bench -p troupe-tests --bench load -- --write -->";
const END: &str = "<!-- end -->";

/// Returns a chapter with its table.
pub(crate) fn chapter(chapter: &Chapter) -> String {
    let mut text = format!("## {}\n\n{}\n\n", chapter.title, chapter.how);
    text.push_str("| what | measured | against | ratio | bar | |\n|---|---|---|---|---|---|\n");
    for figure in &chapter.figures {
        text.push_str(&row(figure));
    }
    text
}

fn row(figure: &Figure) -> String {
    let Figure { name, value, unit, .. } = figure;
    let against = figure.against.as_ref();
    let against = against.map(|against| format!("{} {unit}, {}", shown(against.value), against.name));
    let bar = figure.bar.map(|bar| {
        let limit = shown(bar.limit);
        let unit = match bar.of {
            Of::Ratio => String::new(),
            Of::Value => format!(" {unit}"),
        };
        match bar.side {
            Side::AtMost => format!("at most {limit}{unit}"),
            Side::AtLeast => format!("at least {limit}{unit}"),
        }
    });
    let is_met = figure.is_met().map(|is_met| if is_met { "met" } else { "**missed**" });
    format!(
        "| {name} | {} {unit} | {} | {} | {} | {} |\n",
        shown(*value),
        against.unwrap_or_default(),
        figure.ratio().map(shown).unwrap_or_default(),
        bar.unwrap_or_default(),
        is_met.unwrap_or_default()
    )
}

/// Returns the number of bars that were met, and the names of the missed bars.
pub(crate) fn summary(chapters: &[Chapter]) -> String {
    let (mut met, mut missed) = (0, Vec::new());
    for chapter in chapters {
        for figure in &chapter.figures {
            match figure.is_met() {
                Some(true) => met += 1,
                Some(false) => missed.push(format!("{}: {}", chapter.title, figure.name)),
                None => {}
            }
        }
    }
    let mut text = format!("Bars: {met} met, {} missed.\n", missed.len());
    for name in missed {
        writeln!(text, "- {name}").unwrap();
    }
    text
}

/// Writes the page's tables and its plots.
pub(crate) fn write(chapters: &[Chapter]) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs");
    let plots = docs.join("performance");
    fs::create_dir_all(&plots).unwrap();
    let (ratios, values) = plot::rows(chapters);
    fs::write(
        plots.join("ratios.svg"),
        plot::svg("ratio: measured value divided by the baseline", &ratios),
    )
    .unwrap();
    fs::write(
        plots.join("values.svg"),
        plot::svg("measured value divided by the bar", &values),
    )
    .unwrap();

    let page = docs.join("performance.md");
    let text = fs::read_to_string(&page).unwrap();
    let (head, rest) = text
        .split_once(BEGIN)
        .expect("the page marks the beginning of the tables");
    let (_, tail) = rest.split_once(END).expect("the page marks the end of the tables");
    fs::write(page, format!("{head}{BEGIN}\n\n{}\n{END}{tail}", tables(chapters))).unwrap();
}

fn tables(chapters: &[Chapter]) -> String {
    let mut text = format!("{}\n\n{}\n", machine(), summary(chapters));
    text.push_str("![Ratios, each with its bar](performance/ratios.svg)\n\n");
    text.push_str("![Values with a bar for the value](performance/values.svg)\n");
    for one in chapters {
        text.push('\n');
        text.push_str(&chapter(one));
    }
    text
}

/// Returns a description of the machine, as far as the system provides it.
fn machine() -> String {
    let first = |path: &str, key: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let facts = [
        Some(format!("Troupe {}", env!("CARGO_PKG_VERSION"))),
        Some(format!("{} on {}", env::consts::OS, env::consts::ARCH)),
        first("/proc/sys/kernel/osrelease", "").map(|release| format!("kernel {release}")),
        Some(format!("{cores} cores")),
        first("/proc/cpuinfo", "model name"),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    format!("Measured on: {}.", facts.join(", "))
}
