// The broker's own figures, sampled as long as somebody is signed in: what charts are drawn from.
import { effect, signal, untracked } from '@preact/signals';
import { get, pause, signedIn } from './api';
import { type Problem, reported } from './problems';
import { bytes } from './format';

interface Seen {
  count: number;
  sum_seconds: number;
  counts: number[];
}

interface Check {
  ok: boolean;
  detail: string;
}

// GET /stats, as far as it is drawn.
export interface Stats {
  at: number;
  version: string;
  started_at: number;
  status: string;
  checks: Record<string, Check>;
  sessions: { open: number; open_limit: number | null; resident: number; resident_limit: number | null; running: number; frozen: number; hibernated: number };
  latency_bounds_seconds: number[];
  opens: { ended: Record<string, number>; pool: Record<string, number>; durations: Seen };
  runs: { running: number; running_limit: number; ended: Record<string, number>; durations: Seen };
  requests: { by_status: Record<string, number>; durations: Seen; connections: number };
  engine: { calls: number; errors: number; durations: Seen };
  pool: { runtime: string; ready: number; wanted: number }[];
  disks: { of: string; size_bytes: number | null; free_bytes: number | null }[];
  store_queued_writes: number;
  process: { cpu_seconds: number; resident_bytes: number | null; open_fds: number | null; max_fds: number | null };
}

export interface Sample {
  at: number;
  live: number;
  open: number;
  commands: number;
  opensPerMinute: number | null;
  runsPerMinute: number | null;
  runP50: number | null;
  runP95: number | null;
  openP95: number | null;
  engineP95: number | null;
  poolReady: number;
  poolWanted: number;
  diskUsed: number | null;
}

const EVERY_MS = 5000;
const KEPT = 8640; // twelve hours

export const stats = signal<Stats | null>(null);
export const samples = signal<Sample[]>([]);

const total = (counts: Record<string, number>): number => Object.values(counts).reduce((sum, count) => sum + count, 0);

// Where a share of what was seen between two looks lies, in seconds; null: nothing was seen.
export function quantile(now: Seen, before: Seen | undefined, bounds: number[], share: number): number | null {
  const counts = now.counts.map((count, i) => count - (before?.counts[i] ?? 0));
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all <= 0) return null;
  let left = all * share;
  for (let i = 0; i < counts.length; i++) {
    const count = counts[i]!;
    if (count > 0 && left <= count) {
      const from = i ? bounds[i - 1]! : 0;
      return from + ((bounds[i] ?? from) - from) * (left / count);
    }
    left -= count;
  }
  return bounds.at(-1) ?? null;
}

export const workspaceDisk = (of: Stats) => of.disks.find((disk) => disk.of === 'workspaces') ?? of.disks[0];

function sampleOf(now: Stats, before: Stats | null): Sample {
  // Another start of the broker counts from nothing.
  const same = before && before.started_at === now.started_at ? before : null;
  const minutes = same ? (now.at - same.at) / 60 : 0;
  const rate = (a: number, b: number): number | null => (minutes > 0 ? (a - b) / minutes : null);
  const disk = workspaceDisk(now);
  const bounds = now.latency_bounds_seconds;
  return {
    at: now.at,
    live: now.sessions.resident,
    open: now.sessions.open,
    commands: now.runs.running,
    opensPerMinute: same ? rate(total(now.opens.ended), total(same.opens.ended)) : null,
    runsPerMinute: same ? rate(total(now.runs.ended), total(same.runs.ended)) : null,
    runP50: same ? quantile(now.runs.durations, same.runs.durations, bounds, 0.5) : null,
    runP95: same ? quantile(now.runs.durations, same.runs.durations, bounds, 0.95) : null,
    openP95: same ? quantile(now.opens.durations, same.opens.durations, bounds, 0.95) : null,
    engineP95: same ? quantile(now.engine.durations, same.engine.durations, bounds, 0.95) : null,
    poolReady: now.pool.reduce((sum, pool) => sum + pool.ready, 0),
    poolWanted: now.pool.reduce((sum, pool) => sum + pool.wanted, 0),
    diskUsed: disk?.size_bytes != null && disk.free_bytes != null ? disk.size_bytes - disk.free_bytes : null,
  };
}

const ADVICE: Record<string, string> = {
  engine: 'Files and lists are served meanwhile; commands wait. See the engine’s own log, and DOCKER_HOST.',
  store: 'Nothing new can be written down. See the disk of the state directory and the broker’s log.',
  disk: 'Purge workspaces, or give the file system more room.',
};

function problemsOf(now: Stats): Problem[] {
  const list: Problem[] = Object.entries(now.checks)
    .filter(([, check]) => !check.ok)
    .map(([name, check]) => ({ level: 'bad', text: `${name[0]!.toUpperCase()}${name.slice(1)}: ${check.detail}`, todo: ADVICE[name] ?? 'See the broker’s log.' }));
  for (const disk of now.disks)
    if (disk.size_bytes && disk.free_bytes !== null && disk.free_bytes < disk.size_bytes * 0.1 && now.checks.disk?.ok !== false)
      list.push({ level: 'warn', text: `${bytes(disk.free_bytes)} of ${bytes(disk.size_bytes)} are free on the disk of the ${disk.of}`, todo: ADVICE.disk!, view: ['workspaces'] });
  if (now.process.open_fds !== null && now.process.max_fds && now.process.open_fds > now.process.max_fds * 0.9)
    list.push({ level: 'warn', text: 'The broker is short of descriptors', todo: 'Raise LimitNOFILE of its service.' });
  return list;
}

async function follow(abort: AbortSignal): Promise<void> {
  while (!abort.aborted) {
    try {
      const now = await get<Stats>('/stats', {}, abort);
      samples.value = [...samples.value, sampleOf(now, stats.value)].slice(-KEPT);
      stats.value = now;
      reported.value = problemsOf(now);
    } catch {
      // Whether the broker answers is said elsewhere; a gap in the charts tells of it.
    }
    await pause(EVERY_MS, abort);
  }
}

let abort = new AbortController();
effect(() => {
  if (signedIn.value)
    untracked(() => {
      abort = new AbortController();
      void follow(abort.signal);
    });
  else
    untracked(() => {
      abort.abort();
      stats.value = null;
      samples.value = [];
      reported.value = [];
    });
});
