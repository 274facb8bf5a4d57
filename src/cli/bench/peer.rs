//! Others that compute the same: CUDA sources with a manifest, and figures that were recorded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lathe_codegen::benchmark::Size;
use lathe_codegen::target::Target;
use lathe_runtime::bench::{Contender, ContenderShape, Edges};
use lathe_runtime::device::{Device, DeviceError};
use lathe_runtime::nvrtc::{CompileError, Compiler};
use serde::Deserialize;

/// Why a peer cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("peer {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("peer manifest {} does not parse: {error}", path.display())]
    Manifest { path: PathBuf, error: Box<toml::de::Error> },
    #[error(
        "peer figures {} line {line} do not parse: {error}; a line is \
         {{\"peer\": .., \"kernel\": .., \"batch\": .., \"keys\": .., \"edges\": \"plain\" or \"pdl\", \"us\": ..}}",
        path.display()
    )]
    Line { path: PathBuf, line: usize, error: serde_json::Error },
    #[error("peer figures {} line {line}: us is {us}, accepted: a positive number of microseconds", path.display())]
    Time { path: PathBuf, line: usize, us: f64 },
    #[error("peer `{peer}` ({}): {error}", sources.join(" + "))]
    Compile { peer: String, sources: Vec<String>, error: Box<CompileError> },
    #[error("peer `{peer}` ({}): {error}", sources.join(" + "))]
    Load { peer: String, sources: Vec<String>, error: DeviceError },
}

/// A manifest beside CUDA sources.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What the peer is called in results.
    pub name: String,
    /// Whether its kernels only move bytes: they compute nothing that could be judged.
    #[serde(default)]
    pub floor: bool,
    /// Its kernels.
    #[serde(rename = "kernel")]
    kernels: Vec<PeerKernel>,
    #[serde(skip)]
    folder: PathBuf,
}

/// One CUDA kernel of a peer, in some configurations.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct PeerKernel {
    /// The Lathe kernel whose parameters it takes.
    computes: String,
    /// Files, put behind each other.
    sources: Vec<String>,
    entry: String,
    /// Targets it compiles for; all if left out.
    targets: Option<Vec<String>>,
    /// What a size must have.
    #[serde(default)]
    requires: Requires,
    /// Pages that a CTA (or each of its warpgroups) walks, to choose from: the last parameter. The grid is
    /// `[ceil(pages / walk / warpgroups), rows, 1]`.
    #[serde(default)]
    pages_per_cta: Vec<u32>,
    /// Of a store, the rows that a CTA handles: the grid is `[ceil(rows / these), 1, 1]`.
    rows_per_cta: Option<u32>,
    /// Of a selection, the CTAs of a row of logits: the grid is `[rows, these, 1]`.
    ctas_per_row: Option<u32>,
    #[serde(default = "one")]
    warpgroups: u32,
    threads: u32,
    configurations: Vec<PeerConfiguration>,
}

#[derive(Clone, Copy, Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
struct Requires {
    heads: Option<u32>,
    next_n: Option<u32>,
    top_k: Option<u32>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct PeerConfiguration {
    #[serde(default)]
    defines: BTreeMap<String, i64>,
    #[serde(default)]
    shared_bytes: u32,
}

fn one() -> u32 {
    1
}

/// Few CTAs leave SMs idle and very many cost time to start: a search skips grids outside these, but for a page a CTA.
const USEFUL_CTAS: std::ops::RangeInclusive<u64> = 200..=12_000;

impl Manifest {
    /// Reads a manifest.
    pub fn read(path: &Path) -> Result<Manifest, PeerError> {
        let text = std::fs::read_to_string(path).map_err(|error| PeerError::Read { path: path.into(), error })?;
        let parsed = toml::from_str(&text);
        let manifest: Manifest =
            parsed.map_err(|error| PeerError::Manifest { path: path.into(), error: Box::new(error) })?;
        Ok(Manifest { folder: path.parent().unwrap_or(Path::new(".")).into(), ..manifest })
    }

    /// Everything that computes `kernel` at this size for `target`, in every configuration.
    pub fn contenders(
        &self,
        kernel: &str,
        size: &Size,
        (device, compiler, target): (&Device, &Compiler, Target),
    ) -> Result<Vec<Contender>, PeerError> {
        let mut contenders = Vec::new();
        for peer in self.kernels.iter().filter(|peer| peer.computes == kernel && peer.fits(size, target)) {
            for configuration in &peer.configurations {
                let cubin = self.compile(peer, configuration, compiler, target)?;
                for (grid, walk) in peer.launches(size) {
                    let (threads, shared_bytes) = (peer.threads, configuration.shared_bytes);
                    let shape = ContenderShape { grid, threads, shared_bytes };
                    let name = format!("{} {}", self.name, peer.label(configuration, walk));
                    let extra = walk.map(|walk| walk as i32).into_iter().collect();
                    let contender = Contender::of_cubin(device, name, &cubin, &peer.entry, shape, extra);
                    contenders.push(contender.map_err(|error| PeerError::Load {
                        peer: self.name.clone(),
                        sources: peer.sources.clone(),
                        error,
                    })?);
                }
            }
        }
        Ok(contenders)
    }

    fn compile(
        &self,
        peer: &PeerKernel,
        configuration: &PeerConfiguration,
        compiler: &Compiler,
        target: Target,
    ) -> Result<Vec<u8>, PeerError> {
        let mut text: String =
            configuration.defines.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
        for source in &peer.sources {
            let path = self.folder.join(source);
            text += &std::fs::read_to_string(&path).map_err(|error| PeerError::Read { path, error })?;
        }
        let compiled = compiler.compile(&text, target).map_err(|error| PeerError::Compile {
            peer: self.name.clone(),
            sources: peer.sources.clone(),
            error: Box::new(error),
        })?;
        Ok(compiled.cubin)
    }
}

impl PeerKernel {
    fn fits(&self, size: &Size, target: Target) -> bool {
        let is = |required: Option<u32>, given| required.is_none_or(|required| required == given);
        let runs = self.targets.as_ref().is_none_or(|targets| targets.iter().any(|name| name == target.name()));
        let Requires { heads, next_n, top_k } = self.requires;
        runs && is(heads, size.heads) && is(next_n, size.next_n) && is(top_k, size.top_k)
    }

    /// The grids to choose from, each with the last argument, if the kernel takes one.
    fn launches(&self, size: &Size) -> Vec<([u32; 3], Option<u32>)> {
        let of_rows = self.rows_per_cta.map(|rows| ([size.keys.div_ceil(rows), 1, 1], None));
        let of_selection = self.ctas_per_row.map(|ctas| ([size.batch * size.next_n, ctas, 1], None));
        let of_walks = self.pages_per_cta.iter().filter_map(|&walk| Some((self.grid(size, walk)?, Some(walk))));
        of_rows.into_iter().chain(of_selection).chain(of_walks).collect()
    }

    fn grid(&self, size: &Size, walk: u32) -> Option<[u32; 3]> {
        let (pages, rows) = (size.max_len().div_ceil(64), size.batch * size.next_n);
        let splits = pages.div_ceil(walk * self.warpgroups);
        let ctas = u64::from(splits) * u64::from(rows);
        let useful = walk == 1 || (walk <= pages && USEFUL_CTAS.contains(&(ctas * u64::from(self.warpgroups))));
        useful.then_some([splits, rows, 1])
    }

    /// What tells a launch from the peer's others.
    fn label(&self, configuration: &PeerConfiguration, walk: Option<u32>) -> String {
        let source = self.sources.last().map_or("", |source| source.split('.').next().unwrap_or(source));
        let walk = walk.map(|walk| format!("pages_per_cta={walk}"));
        let varied =
            |name: &str| self.configurations.iter().any(|c| c.defines.get(name) != configuration.defines.get(name));
        let defines = configuration.defines.iter().filter(|(name, _)| varied(name));
        let defines = defines.map(|(name, value)| format!("{}={value}", name.to_lowercase()));
        std::iter::once(source.to_owned()).chain(walk).chain(defines).collect::<Vec<_>>().join(" ")
    }
}

/// A time that somebody measured elsewhere.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Who.
    pub peer: String,
    /// The Lathe kernel that computes the same.
    pub kernel: String,
    /// Requests of the batch.
    pub batch: u32,
    /// Keys of each request.
    pub keys: u32,
    /// Query tokens a request.
    #[serde(default = "one")]
    pub next_n: u32,
    /// Query heads.
    #[serde(default = "sixty_four")]
    pub heads: u32,
    /// Entries selected a row.
    #[serde(default = "usual_top_k")]
    pub top_k: u32,
    /// `plain` or `pdl`.
    pub edges: RecordedEdges,
    /// Microseconds a call.
    pub us: f64,
}

/// The edges of a recorded time.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum RecordedEdges {
    Plain,
    Pdl,
}

fn sixty_four() -> u32 {
    64
}

fn usual_top_k() -> u32 {
    Size::new(1, 1).top_k
}

impl Recorded {
    /// Reads JSON lines; empty ones are skipped.
    pub fn read(path: &Path) -> Result<Vec<Recorded>, PeerError> {
        let text = std::fs::read_to_string(path).map_err(|error| PeerError::Read { path: path.into(), error })?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(index, line)| {
                let (path, line_number) = (path.to_owned(), index + 1);
                match serde_json::from_str::<Recorded>(line) {
                    Err(error) => Err(PeerError::Line { path, line: line_number, error }),
                    Ok(Recorded { us, .. }) if !(us > 0.0 && us.is_finite()) => {
                        Err(PeerError::Time { path, line: line_number, us })
                    }
                    Ok(recorded) => Ok(recorded),
                }
            })
            .collect()
    }

    /// Whether it is a time of this kernel, size and kind of edges.
    pub fn is_of(&self, kernel: &str, size: &Size, edges: Edges) -> bool {
        let Recorded { next_n, heads, top_k, .. } = *self;
        let own = Size { next_n, heads, top_k, ..Size::new(self.batch, self.keys) };
        let same_edges = matches!(
            (self.edges, edges),
            (RecordedEdges::Plain, Edges::Plain) | (RecordedEdges::Pdl, Edges::Programmatic)
        );
        self.kernel == kernel && own == *size && same_edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn figures_are_read_line_by_line_and_belong_to_one_size() {
        let file = file(
            "{\"peer\": \"Triton\", \"kernel\": \"k\", \"batch\": 1, \"keys\": 1024, \"edges\": \"plain\", \"us\": 2.63}\n\n",
        );
        let recorded = Recorded::read(file.path()).unwrap();
        assert!(recorded[0].is_of("k", &Size::new(1, 1_024), Edges::Plain));
        assert!(!recorded[0].is_of("k", &Size::new(1, 1_024), Edges::Programmatic));
        assert!(!recorded[0].is_of("k", &Size { heads: 32, ..Size::new(1, 1_024) }, Edges::Plain));
        assert!(!recorded[0].is_of("other", &Size::new(1, 1_024), Edges::Plain));
    }

    #[test]
    fn a_line_that_does_not_parse_is_named() {
        let message = |text: &str| Recorded::read(file(text).path()).unwrap_err().to_string();
        assert!(message("\n{\"peer\": 1}").contains("line 2 do not parse: invalid type: integer `1`"));
        let negative =
            "{\"peer\": \"x\", \"kernel\": \"k\", \"batch\": 1, \"keys\": 1, \"edges\": \"pdl\", \"us\": -1}";
        assert!(message(negative).ends_with("line 1: us is -1, accepted: a positive number of microseconds"));
        assert!(
            Recorded::read(Path::new("/nowhere/peer.jsonl")).unwrap_err().to_string().contains("/nowhere/peer.jsonl")
        );
    }

    #[test]
    fn a_manifest_with_an_unknown_key_is_refused_with_its_line() {
        let error = Manifest::read(file("name = \"x\"\nkernels = 3\n").path()).unwrap_err().to_string();
        assert!(error.contains("does not parse") && error.contains("line 2"), "{error}");
    }

    fn manifest(folder: &str) -> Manifest {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
        Manifest::read(&peers.join(folder).join("peer.toml")).unwrap()
    }

    fn shipped() -> Manifest {
        manifest("handwritten")
    }

    #[test]
    fn the_shipped_peer_covers_the_sizes_it_was_written_for() {
        let peer = shipped();
        let of = |size: &Size, target| {
            let fitting = peer.kernels.iter().filter(|k| k.fits(size, target));
            fitting.map(|k| k.computes.as_str()).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(of(&Size::new(1, 1_024), Target::Sm90a), 2);
        assert_eq!(of(&Size { heads: 32, ..Size::new(1, 1_024) }, Target::Sm90a), 0);
        assert_eq!(of(&Size { next_n: 2, ..Size::new(1, 1_024) }, Target::Sm90a), 0);
    }

    #[test]
    fn recorded_figures_ship_and_parse() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
        let figures = Recorded::read(&peers.join("deepgemm_h200.jsonl")).unwrap();
        assert!(figures.iter().any(|f| f.is_of("fp8_paged_mqa_logits", &Size::new(128, 65_536), Edges::Programmatic)));
    }

    #[test]
    fn a_floor_of_a_store_covers_its_rows_and_takes_no_walk() {
        let floor = manifest("floors");
        assert!(floor.floor && !shipped().floor);
        let store = floor.kernels.iter().find(|kernel| kernel.computes == "bf16_index_k_store").unwrap();
        assert_eq!(store.launches(&Size::new(1, 1_001)), [([126, 1, 1], None)]);
    }

    #[test]
    fn a_search_skips_grids_that_idle_or_flood() {
        let kernel = &shipped().kernels[0];
        assert_eq!(kernel.grid(&Size::new(1, 1_024), 1), Some([16, 1, 1]));
        assert_eq!(kernel.grid(&Size::new(1, 1_024), 2), None);
        assert_eq!(kernel.grid(&Size::new(64, 16_384), 32), Some([8, 64, 1]));
        assert_eq!(kernel.grid(&Size::new(128, 65_536), 8), None);
    }

    #[test]
    fn the_shipped_sources_compile_in_every_configuration() {
        let toolchain = lathe_runtime::toolchain::Toolchain::new(false, |_| {});
        let compiler = Compiler::load(&toolchain).unwrap();
        for peer in [shipped(), manifest("floors")] {
            for kernel in &peer.kernels {
                for configuration in &kernel.configurations {
                    let cubin = peer.compile(kernel, configuration, &compiler, Target::Sm90a);
                    cubin.unwrap_or_else(|error| panic!("{} {configuration:?}: {error}", kernel.sources.join(" + ")));
                }
            }
        }
    }
}
