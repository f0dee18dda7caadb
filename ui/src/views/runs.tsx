// Commands of a session: start one, watch its output, stop it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, get, isAbort, pause, records, send } from '../lib/api';
import { bytes, duration, exactTime, milliseconds } from '../lib/format';
import { usePoll } from '../lib/poll';
import { now, refreshSessions } from '../lib/state';
import type { Run, Session } from '../lib/types';
import { Icon } from '../parts/icons';
import { Ago, Empty, ErrorBox, Facts, Loading, WorkButton } from '../parts/small';
import { attempt, complain } from '../parts/toast';
import './session.css';

const SHOWN_MAX_CHARS = 1000000;
// Colours and cursor movements of a terminal: this is a list of lines.
// eslint-disable-next-line no-control-regex
const ESCAPES = /\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])/g;

export function outcome(run: Run): { text: string; good: boolean } {
  if (run.state !== 'ended') return { text: run.state === 'starting' ? 'starting' : 'running', good: true };
  if (run.lost) return { text: `lost${run.cause ? `: ${run.cause}` : ''}`, good: false };
  if (run.timed_out) return { text: 'timed out', good: false };
  if (run.oom) return { text: 'out of memory', good: false };
  if (run.stopped) return { text: 'stopped', good: true };
  if (run.signal) return { text: `signal ${run.signal}`, good: false };
  return { text: `exit ${run.exit_code}`, good: run.exit_code === 0 };
}

interface Piece {
  err: boolean;
  text: string;
}

type OutputRecord = { type: string; id?: string; text?: string; base64?: string; bytes?: number } & Partial<Run>;

function textOf(record: OutputRecord): string {
  const text = record.text ?? new TextDecoder().decode(Uint8Array.from(atob(record.base64 ?? ''), (c) => c.charCodeAt(0)));
  return text.replace(ESCAPES, '').replace(/\r\n/g, '\n');
}

const Output = ({ session, run }: { session: string; run: Run }) => {
  const [pieces, setPieces] = useState<Piece[]>([]);
  const [end, setEnd] = useState('');
  const [error, setError] = useState<unknown>(null);
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);

  useEffect(() => {
    const abort = new AbortController();
    let after: string | undefined;
    let shown: Piece[] = [];
    let drawing = 0;
    const add = (err: boolean, text: string) => {
      const last = shown.at(-1);
      if (last && last.err === err && last.text.length < 65536) shown = [...shown.slice(0, -1), { err, text: last.text + text }];
      else shown = [...shown, { err, text }];
      let size = shown.reduce((sum, piece) => sum + piece.text.length, 0);
      while (size > SHOWN_MAX_CHARS && shown.length > 1) {
        size -= shown[0]!.text.length;
        shown = shown.slice(1);
      }
      drawing ||= requestAnimationFrame(() => {
        drawing = 0;
        setPieces(shown);
      });
    };
    const follow = async () => {
      while (!abort.signal.aborted) {
        try {
          for await (const record of records<OutputRecord>(`/sessions/${session}/runs/${run.run_id}/output`, { after }, abort.signal)) {
            if (record.id) after = record.id;
            if (record.type === 'stdout' || record.type === 'stderr') add(record.type === 'stderr', textOf(record));
            else if (record.type === 'dropped') add(true, `[${record.bytes} bytes are missing here]\n`);
            else if (record.type === 'replaced') return setEnd('Somebody else reads this output now.');
            else if (record.type === 'exit') return setEnd('');
          }
        } catch (reason) {
          if (isAbort(reason)) return;
          // A broken connection and a broker that starts again are waited for: the output goes on behind what was shown.
          if (reason instanceof ApiError && reason.status !== 0 && reason.status !== 503) return setError(reason);
        }
        await pause(1000, abort.signal);
      }
    };
    void follow();
    return () => {
      abort.abort();
      cancelAnimationFrame(drawing);
    };
  }, [session, run.run_id]);
  useEffect(() => {
    if (follows.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [pieces]);
  const scrolled = () => {
    const at = box.current!;
    follows.current = at.scrollTop + at.clientHeight >= at.scrollHeight - 20;
  };
  if (error) return <ErrorBox error={error} />;
  return (
    <div class="pane-body" ref={box} onScroll={scrolled} tabIndex={0} role="log" aria-label="Output">
      {pieces.length ? (
        <pre class="output">
          {pieces.map((piece, i) => (
            <span key={i} class={piece.err ? 'err' : ''}>
              {piece.text}
            </span>
          ))}
        </pre>
      ) : (
        <p class="loading">{run.state === 'ended' ? 'It wrote nothing that is still kept.' : 'Nothing was written yet.'}</p>
      )}
      {end && <p class="loading">{end}</p>}
    </div>
  );
};

const Detail = ({ session, run, mine, refresh }: { session: string; run: Run; mine: boolean; refresh: () => void }) => {
  const [watched, setWatched] = useState(mine || run.state === 'ended');
  const result = outcome(run);
  const stop = () => attempt(() => send('POST', `/sessions/${session}/runs/${run.run_id}/stop`), 'It is asked to stop.').then(refresh);
  return (
    <>
      <div class="pane-head">
        <span class="grow mono clip" title={run.command}>
          {run.command}
        </span>
        {run.state !== 'ended' && (
          <WorkButton onWork={stop} class="danger">
            Stop
          </WorkButton>
        )}
      </div>
      <div class="run-facts">
        <Facts
          rows={[
            ['Result', <span class={result.good ? '' : 'danger-text'}>{result.text}</span>],
            ['Started', <span title={exactTime(run.started_at)}><Ago at={run.started_at} /></span>],
            ['Took', run.ended_at ? milliseconds((run.ended_at - run.started_at) * 1000) : duration(now.value - run.started_at)],
            ['Processor, memory', run.cpu_ms === null && run.peak_bytes === null ? (run.state === 'ended' ? 'not known' : 'told when it ends') : `${milliseconds(run.cpu_ms)}, ${bytes(run.peak_bytes)}`],
          ]}
        />
      </div>
      {watched ? (
        <Output key={run.run_id} session={session} run={run} />
      ) : (
        <Empty title="Its output is not being read here" icon="sessions">
          <p>A command has one reader. Reading it here takes the output from whoever reads it now.</p>
          <p>
            <button type="button" onClick={() => setWatched(true)}>
              Read it here
            </button>
          </p>
        </Empty>
      )}
    </>
  );
};

export const Runs = ({ session }: { session: Session }) => {
  const id = session.session_id;
  const [chosen, setChosen] = useState('');
  const [mine, setMine] = useState<ReadonlySet<string>>(new Set());
  const { value, error, refresh } = usePoll((signal) => get<{ runs: Run[] }>(`/sessions/${id}/runs`, {}, signal), 1500, [id]);
  const runs = value?.runs ?? [];
  const run = runs.find((row) => row.run_id === chosen);

  const start = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const command = String(new FormData(form).get('command'));
    try {
      const started = await send<Run>('POST', `/sessions/${id}/runs`, { command });
      setMine(new Set(mine).add(started.run_id));
      setChosen(started.run_id);
      form.reset();
      refresh();
      void refreshSessions();
    } catch (reason) {
      complain(reason, 'Starting it');
    }
  };
  return (
    <>
      <form class="command-form" onSubmit={start}>
        <input name="command" class="mono" required placeholder="A command for sh, such as: python3 -c 'print(6 * 7)'" aria-label="Command" autocomplete="off" spellcheck={false} />
        <button type="submit" class="primary">
          <Icon name="play" /> Run
        </button>
      </form>
      <div class="split">
        <section class="pane" aria-label="Runs">
          <div class="pane-body">
            {error !== null && <ErrorBox error={error} retry={refresh} />}
            {!value && error === null && <Loading what="runs" />}
            {value && !runs.length && (
              <Empty title="Nothing was run yet" icon="play">
                Commands of applications and of this page appear here, and stay for a day after their end.
              </Empty>
            )}
            {runs.map((row) => {
              const result = outcome(row);
              return (
                <button key={row.run_id} type="button" class="run-row" aria-current={row.run_id === chosen ? 'true' : undefined} onClick={() => setChosen(row.run_id)}>
                  <span class="mono clip">{row.command}</span>
                  <span class="quiet">
                    <span class={result.good ? '' : 'danger-text'}>{result.text}</span> · <Ago at={row.started_at} />
                  </span>
                </button>
              );
            })}
          </div>
        </section>
        <section class="pane" aria-label="Run">
          {run ? (
            <Detail key={run.run_id} session={id} run={run} mine={mine.has(run.run_id)} refresh={refresh} />
          ) : (
            <Empty title="No run is chosen" icon="play">
              Choose one to see its output and what it took.
            </Empty>
          )}
        </section>
      </div>
    </>
  );
};
