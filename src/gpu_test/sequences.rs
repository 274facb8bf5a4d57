//! The sequences in which a caching allocator's bytes go wrong, each as a small graph whose reader is slow enough to lose.
//!
//! Which pair it is that nobody orders, and what each intervention on it does, is [`measure`]d: as recorded, with either of
//! the two forced first, serialised, and with bytes of their own.

use lathe_codegen::contract::ScalarValue;
use lathe_graph::build::{Bytes, Capture, Lasting, Recording, Stream};
use lathe_graph::check::check;
use lathe_graph::explore::{Order, Schedule, World};
use lathe_graph::finding::Code;
use lathe_graph::model::{BufferId, GraphId, NodeId, Phase, Placement, Pool};
use lathe_runtime::instrument::{Cause, Rate, TwoByTwo};
use lathe_runtime::replay::{Bindings, Captured, CudaStep, Edges, EmulatedStep, Inspect, Launch, Mode};
use serde::Serialize;

use super::scenario::{BYTES, LEN, Programs, disjoint, floats, framework, planned, scaled};
use super::{Failure, Gpu, Outcome, Test, ensure, note};

/// Loads before the reader reads: some 100 microseconds.
pub const HOPS: i32 = 5000;

/// A sequence.
pub struct Sequence<'p> {
    /// Its name in the field: `S1` and so on.
    pub name: &'static str,
    /// What happens, in a line.
    pub about: &'static str,
    /// What the checker calls it.
    pub code: Code,
    /// What the two-by-two must say.
    pub cause: Cause,
    pool: Pool,
    bindings: Bindings<'p>,
    /// Reads, late.
    reader: NodeId,
    /// Writes what the reader has not read yet.
    writer: NodeId,
    /// What the reader writes.
    result: BufferId,
    /// Where the framework puts the buffers.
    shared: Placement,
}

/// How often the reader's result was wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// The sequence.
    pub name: &'static str,
    /// What happens in it.
    pub about: &'static str,
    /// What the checker finds, without running it.
    pub found: String,
    /// As recorded.
    pub concurrent: Rate,
    /// The reader forced before the writer.
    pub reader_first: Rate,
    /// The writer forced before the reader.
    pub writer_first: Rate,
    /// One node after the other.
    pub serialised: Rate,
    /// As recorded, no two buffers sharing bytes.
    pub disjoint: Rate,
    /// One node after the other, no two buffers sharing bytes.
    pub serialised_disjoint: Rate,
    /// As recorded, where Lathe's planner puts the buffers; none where the planner's input is refused.
    pub planned: Option<Rate>,
    /// What the two-by-two says.
    pub cause: Cause,
}

pub(super) fn tests() -> Vec<Test> {
    vec![Test {
        group: "sequences",
        name: "each_pair_decides_alone_and_the_two_by_two_names_its_cause",
        run: each_pair_decides_alone,
    }]
}

fn each_pair_decides_alone(gpu: &Gpu) -> Outcome {
    const REPLAYS: u64 = 200;
    let programs = Programs::compile(|kernel| gpu.program(kernel))?;
    let mut notes = Vec::new();
    for sequence in sequences(&programs)? {
        let rates = measure(gpu, &sequence, REPLAYS)?;
        let name = sequence.name;
        ensure!(rates.found.contains(&sequence.code.to_string()), "{name}: the checker finds {}", rates.found);
        ensure!(rates.concurrent.events > 0, "{name}: never wrong: the reader is not slow enough");
        ensure!(rates.reader_first.events == 0, "{name}: with the reader first {:?}", rates.reader_first);
        ensure!(rates.writer_first.events == REPLAYS, "{name}: with the writer first {:?}", rates.writer_first);
        ensure!(rates.planned.is_none_or(|rate| rate.events == 0), "{name}: planned {:?}", rates.planned);
        ensure!(rates.cause == sequence.cause, "{name}: the two-by-two says {:?}: {rates:?}", rates.cause);
        notes.push(note(format!("{name}, concurrent"), rates.concurrent.share(), "of replays wrong"));
    }
    Ok(notes)
}

/// All of them.
///
/// # Errors
/// None: the recordings are right as far as a recording can be.
pub fn sequences(programs: &Programs) -> Result<Vec<Sequence<'_>>, Failure> {
    Ok(vec![
        reader_left_behind(programs)?,
        freed_by_another_stream(programs)?,
        persistent(programs)?,
        late_persistent(programs)?,
    ])
}

/// Replays the sequence in every way, `replays` times each.
///
/// # Errors
/// The device's.
pub fn measure(gpu: &Gpu, sequence: &Sequence, replays: u64) -> Result<Rates, Failure> {
    let Sequence { pool, bindings, reader, writer, .. } = sequence;
    let mut shared = CudaStep::unproved(gpu.device, pool, &sequence.shared, bindings)?;
    let mut apart = CudaStep::unproved(gpu.device, pool, &disjoint(pool)?, bindings)?;
    let expected = {
        // The reader before the writer, on bytes that nobody shares: what the author meant.
        let meant = apart.prepare(GraphId(0), &mode(Edges::Forced { first: *reader, second: *writer }))?;
        apart.restore()?;
        meant.run(&apart)?;
        apart.read(sequence.result)?
    };
    let rate = |step: &mut CudaStep, edges: Edges| -> Result<Rate, Failure> {
        let replay = step.prepare(GraphId(0), &mode(edges))?;
        let mut rate = Rate { events: 0, trials: 0 };
        for _ in 0..replays {
            step.restore()?;
            replay.run(step)?;
            rate.events += u64::from(step.read(sequence.result)? != expected);
            rate.trials += 1;
        }
        Ok(rate)
    };
    let table = TwoByTwo {
        concurrent_planned: rate(&mut shared, Edges::Recorded)?,
        concurrent_disjoint: rate(&mut apart, Edges::Recorded)?,
        serialised_planned: rate(&mut shared, Edges::Serialised)?,
        serialised_disjoint: rate(&mut apart, Edges::Serialised)?,
    };
    let plan = check(pool, None)?.is_clean().then(|| planned(pool)).transpose()?;
    let planned = plan.map(|placement| {
        let mut step = CudaStep::unproved(gpu.device, pool, &placement, bindings)?;
        rate(&mut step, Edges::Recorded)
    });
    Ok(Rates {
        name: sequence.name,
        about: sequence.about,
        found: sequence.found()?.iter().map(Code::to_string).collect::<Vec<_>>().join(", "),
        concurrent: table.concurrent_planned,
        reader_first: rate(&mut shared, Edges::Forced { first: *reader, second: *writer })?,
        writer_first: rate(&mut shared, Edges::Forced { first: *writer, second: *reader })?,
        serialised: table.serialised_planned,
        disjoint: table.concurrent_disjoint,
        serialised_disjoint: table.serialised_disjoint,
        planned: planned.transpose()?,
        cause: table.cause(),
    })
}

impl Sequence<'_> {
    /// Whether the result on the emulator, at the framework's addresses, is right with the reader before the writer, and
    /// with the writer before the reader.
    ///
    /// # Errors
    /// The emulator's.
    pub fn emulated(&self) -> Result<(bool, bool), Failure> {
        let schedule = Schedule::new(&self.pool, GraphId(0));
        let order =
            |late, early| schedule.pair_order(late, early, Phase::AfterWait).ok_or("the edges exclude the order");
        let run = |placement: &Placement, order: Order| -> Result<Vec<u8>, Failure> {
            let mut step = EmulatedStep::new(&self.pool, placement, &self.bindings)?;
            order.steps.iter().try_for_each(|&at| step.run(at))?;
            Ok(step.bytes(self.result)?)
        };
        let meant = run(&disjoint(&self.pool)?, order(self.writer, self.reader)?)?;
        let reader_first = run(&self.shared, order(self.writer, self.reader)?)?;
        let writer_first = run(&self.shared, order(self.reader, self.writer)?)?;
        Ok((reader_first == meant, writer_first == meant))
    }

    /// What the checker finds at the framework's addresses, in order and once each.
    ///
    /// # Errors
    /// None: the pool is valid.
    pub fn found(&self) -> Result<Vec<Code>, Failure> {
        let mut found: Vec<Code> =
            check(&self.pool, Some(&self.shared))?.findings.iter().map(|finding| finding.code).collect();
        found.sort();
        found.dedup();
        Ok(found)
    }
}

fn mode(edges: Edges) -> Mode {
    Mode { captured: Captured::Whole, edges }
}

/// Records into `recording`, with inputs of which every sequence has some.
struct Tape<'p> {
    programs: &'p Programs,
    bindings: Bindings<'p>,
}

impl<'p> Tape<'p> {
    fn new(programs: &'p Programs) -> Self {
        Tape { programs, bindings: Bindings::new() }
    }

    fn input(&mut self, recording: &mut Recording, name: &str, first: f32) -> Lasting {
        let buffer = recording.input(name, BYTES);
        self.bindings.contents(buffer.id(), floats((0..LEN).map(|i| first + i as f32)));
        buffer
    }

    fn zeros(&mut self, recording: &mut Recording) -> Lasting {
        let zeros = recording.input("zeros", 256);
        self.bindings.contents(zeros.id(), vec![0; 256]);
        zeros
    }

    /// What was recorded, at the framework's addresses; `truth` is what the checker and the two-by-two should call it, and
    /// of `recorded` are the reader, the writer and the buffer that shows who came first.
    fn finish(
        self,
        recording: &Recording,
        name: &'static str,
        about: &'static str,
        (code, cause): (Code, Cause),
        (reader, writer, result): (NodeId, NodeId, BufferId),
    ) -> Result<Sequence<'p>, Failure> {
        let pool = recording.pool().clone();
        let shared = framework(&pool)?;
        Ok(Sequence { name, about, code, cause, pool, bindings: self.bindings, reader, writer, result, shared })
    }

    fn run(&mut self, g: &mut Capture, on: Stream, launch: Launch<'p>) -> Result<NodeId, Failure> {
        let node = g.launch(on, launch.work()?);
        self.bindings.kernel(node, launch);
        Ok(node)
    }

    /// Reads `x` late.
    fn late<'a, 'b>(
        &self,
        zeros: &impl Bytes<'static>,
        x: &impl Bytes<'a>,
        out: &impl Bytes<'b>,
    ) -> Result<Launch<'p>, Failure> {
        let launch = Launch::named("late reader", &self.programs.late, [1, 1, 1]).buffer(zeros)?.buffer(x)?;
        Ok(launch.buffer(out)?.scalar(ScalarValue::F32(3.0))?.scalar(ScalarValue::I32(HOPS))?)
    }
}

/// S1: main writes A; the side stream reads A, late; the host drops A, and main's next tensor gets its bytes.
fn reader_left_behind(programs: &Programs) -> Result<Sequence<'_>, Failure> {
    let mut recording = Recording::new();
    let mut tape = Tape::new(programs);
    let (tokens, zeros) = (tape.input(&mut recording, "tokens", 0.5), tape.zeros(&mut recording));
    let mut recorded: Result<_, Failure> = Err("nothing was recorded".into());
    recording.capture("S1", "main", |g| {
        let (main, side) = (g.main(), g.stream("side"));
        let (scores, hidden) = (g.output("scores", BYTES), g.output("hidden", BYTES));
        recorded = g.transients([("A", BYTES), ("B", BYTES)], |g, [a, b]| {
            tape.run(g, main, scaled(programs, "write A", &tokens, &a, 2.0)?)?;
            g.order(main, side);
            let late = tape.late(&zeros, &a, &scores)?;
            let reader = tape.run(g, side, late)?;
            let writer = tape.run(g, main, scaled(programs, "write B", &tokens, &b, 5.0)?)?;
            tape.run(g, main, scaled(programs, "read B", &b, &hidden, 7.0)?)?;
            Ok((reader, writer, scores.id()))
        });
        g.order(side, main);
    });
    tape.finish(
        &recording,
        "S1",
        "the side stream still reads what main has dropped",
        (Code::E2, Cause::Alias),
        recorded?,
    )
}

/// S2: the side stream writes L; main reads L, late; the host drops L, and the side stream's next tensor gets its bytes.
fn freed_by_another_stream(programs: &Programs) -> Result<Sequence<'_>, Failure> {
    let mut recording = Recording::new();
    let mut tape = Tape::new(programs);
    let (tokens, zeros) = (tape.input(&mut recording, "tokens", 0.5), tape.zeros(&mut recording));
    let mut recorded: Result<_, Failure> = Err("nothing was recorded".into());
    recording.capture("S2", "main", |g| {
        let (main, side) = (g.main(), g.stream("side"));
        let (scores, next) = (g.output("scores", BYTES), g.output("next", BYTES));
        recorded = g.transients([("x", BYTES), ("L", BYTES), ("L'", BYTES)], |g, [x, l, l2]| {
            tape.run(g, main, scaled(programs, "embed", &tokens, &x, 1.5)?)?;
            g.order(main, side);
            tape.run(g, side, scaled(programs, "write L", &x, &l, 2.0)?)?;
            g.order(side, main);
            let late = tape.late(&zeros, &l, &scores)?;
            let reader = tape.run(g, main, late)?;
            let writer = tape.run(g, side, scaled(programs, "write L'", &tokens, &l2, 5.0)?)?;
            tape.run(g, side, scaled(programs, "read L'", &l2, &next, 7.0)?)?;
            Ok((reader, writer, scores.id()))
        });
        g.order(side, main);
    });
    tape.finish(
        &recording,
        "S2",
        "main still reads what the side stream gets back",
        (Code::E2, Cause::Alias),
        recorded?,
    )
}

/// S3: one persistent buffer: the side stream writes it, main reads it, late, and the side stream's next layer writes it.
fn persistent(programs: &Programs) -> Result<Sequence<'_>, Failure> {
    let mut recording = Recording::new();
    let mut tape = Tape::new(programs);
    let (tokens, zeros) = (tape.input(&mut recording, "tokens", 0.5), tape.zeros(&mut recording));
    let workspace = recording.scratch("P", BYTES);
    let mut recorded: Result<_, Failure> = Err("nothing was recorded".into());
    recording.capture("S3", "main", |g| {
        let (main, side) = (g.main(), g.stream("side"));
        let scores = g.output("scores", BYTES);
        recorded = g.transient("x", BYTES, |g, x| {
            tape.run(g, main, scaled(programs, "embed", &tokens, &x, 1.5)?)?;
            g.order(main, side);
            tape.run(g, side, scaled(programs, "write P", &x, &workspace, 2.0)?)?;
            g.order(side, main);
            let late = tape.late(&zeros, &workspace, &scores)?;
            let reader = tape.run(g, main, late)?;
            let writer = tape.run(g, side, scaled(programs, "write P again", &tokens, &workspace, 5.0)?)?;
            Ok((reader, writer, scores.id()))
        });
        g.order(side, main);
    });
    tape.finish(
        &recording,
        "S3",
        "layers share one persistent buffer without an order",
        (Code::E1, Cause::MissingEdge),
        recorded?,
    )
}

/// S5: a persistent buffer allocated during the capture, on bytes that an earlier recorded kernel writes at each replay.
fn late_persistent(programs: &Programs) -> Result<Sequence<'_>, Failure> {
    let mut recording = Recording::new();
    let mut tape = Tape::new(programs);
    let (tokens, zeros) = (tape.input(&mut recording, "tokens", 0.5), tape.zeros(&mut recording));
    let constants = recording.persistent("C", BYTES);
    tape.bindings.contents(constants.id(), floats((0..LEN).map(|i| 1000.0 + i as f32)));
    let mut recorded: Result<_, Failure> = Err("nothing was recorded".into());
    recording.capture("S5", "main", |g| {
        let (main, side) = (g.main(), g.stream("side"));
        let (scores, hidden) = (g.output("scores", BYTES), g.output("hidden", BYTES));
        recorded = g.transients([("x", BYTES), ("T", BYTES)], |g, [x, t]| {
            tape.run(g, main, scaled(programs, "embed", &tokens, &x, 1.5)?)?;
            g.order(main, side);
            let writer = tape.run(g, main, scaled(programs, "write T", &x, &t, 2.0)?)?;
            tape.run(g, main, scaled(programs, "read T", &t, &hidden, 7.0)?)?;
            let late = tape.late(&zeros, &constants, &scores)?;
            let reader = tape.run(g, side, late)?;
            Ok((reader, writer, scores.id(), t.id()))
        });
        g.order(side, main);
    });
    let (reader, writer, result, t) = recorded?;
    let about = "a persistent buffer lies on bytes that each replay writes";
    let truth = (Code::E5, Cause::Lifetime);
    let mut sequence = tape.finish(&recording, "S5", about, truth, (reader, writer, result))?;
    if let Some(address) = sequence.shared.address(t) {
        sequence.shared.set(constants.id(), address);
    }
    Ok(sequence)
}
