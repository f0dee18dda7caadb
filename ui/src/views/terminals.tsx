// The terminals of a session: those that run, and a new one.
import { useEffect, useState } from 'preact/hooks';
import { get, pause } from '../lib/api';
import type { Run, Session } from '../lib/types';
import { stateOf } from '../lib/state';
import { lazy } from '../parts/lazy';
import { Ago, Empty } from '../parts/small';

const TerminalPane = lazy('terminal', async () => (await import('../parts/terminal')).TerminalPane);

// Which run this page was looking at, so that coming back enters it again.
const last = new Map<string, string>();

export const Terminals = ({ session }: { session: Session }) => {
  const id = session.session_id;
  const [shown, setShown] = useState<{ run: string | null; serial: number } | null>(last.has(id) ? { run: last.get(id)!, serial: 0 } : null);
  const [runs, setRuns] = useState<Run[]>([]);
  const asleep = stateOf(session) === 'asleep';

  useEffect(() => {
    const abort = new AbortController();
    const look = async () => {
      while (!abort.signal.aborted && !shown) {
        if (!document.hidden) {
          const list = await get<{ runs: Run[] }>(`/sessions/${id}/runs`, { state: 'running' }, abort.signal).catch(() => null);
          if (list && !abort.signal.aborted) setRuns(list.runs.filter((run) => run.tty));
        }
        await pause(2000, abort.signal);
      }
    };
    void look();
    return () => abort.abort();
  }, [id, shown]);

  const open = (run: string | null) => setShown({ run, serial: (shown?.serial ?? 0) + 1 });
  if (shown)
    return (
      <TerminalPane
        key={shown.serial}
        session={id}
        run={shown.run}
        onStarted={(run) => last.set(id, run)}
        onEnded={() => {
          last.delete(id);
          setShown(null);
        }}
      />
    );
  return (
    <div class="card terminal-start">
      <Empty title={asleep ? 'The session is asleep' : runs.length ? 'Terminals are open here' : 'No terminal is open'} icon="sessions">
        {asleep ? 'A shell wakes it: its container starts again, its files are as they were.' : 'A shell in the sandbox, as its own user. It goes on when this page is closed, and can be entered again.'}
      </Empty>
      <ul class="terminal-list">
        {runs.map((run) => (
          <li key={run.run_id}>
            <button type="button" onClick={() => open(run.run_id)}>
              Enter
            </button>
            <span class="mono clip">{run.command}</span>
            <Ago at={run.started_at} />
          </li>
        ))}
        <li>
          <button type="button" class="primary" onClick={() => open(null)}>
            {asleep ? 'Wake it and start a shell' : 'Start a shell'}
          </button>
        </li>
      </ul>
    </div>
  );
};
