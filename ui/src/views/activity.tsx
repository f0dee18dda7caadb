// What is done in a session, newest first, as it happens: its commands and file operations, and the turns of its life.
import { useEffect, useState } from 'preact/hooks';
import { get, isAbort, pause } from '../lib/api';
import { clockTime, detailWords, exactTime, milliseconds, opWords } from '../lib/format';
import { feed } from '../lib/state';
import type { Activity } from '../lib/types';
import { Empty, ErrorBox, Loading } from '../parts/small';
import { type Column, Table } from '../parts/table';

const EVERY_MS = 1000;
const KEPT = 5000;

interface Row {
  key: string;
  at: number;
  op: string;
  target: string;
  detail: string;
  ok: boolean;
  duration: number | null;
  life: boolean;
}

const COLUMNS: Column<Row>[] = [
  { key: 'at', title: 'Time', cell: (row) => <time dateTime={new Date(row.at * 1000).toISOString()} title={exactTime(row.at)}>{clockTime(row.at)}</time>, width: '6rem' },
  { key: 'op', title: 'What', cell: (row) => (row.life ? <span class="tag">{opWords(row.op)}</span> : row.op), width: '8rem' },
  { key: 'target', title: 'Of what', cell: (row) => <span class="mono clip" title={row.target}>{row.target}</span>, under: (row) => row.detail || (row.ok ? 'done' : 'failed') },
  { key: 'ok', title: 'Result', cell: (row) => (row.ok ? <span class="clip" title={row.detail}>{row.detail || 'done'}</span> : <span class="danger-text clip" title={row.detail}>{row.detail || 'failed'}</span>), less: 1 },
  { key: 'took', title: 'Took', cell: (row) => (row.duration === null ? '' : milliseconds(row.duration)), align: 'end', width: '6rem', less: 1 },
];

export const ActivityView = ({ id }: { id: string }) => {
  const [done, setDone] = useState<Activity[] | null>(null);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    const abort = new AbortController();
    let after = 0;
    const loop = async () => {
      while (!abort.signal.aborted) {
        if (!document.hidden)
          try {
            const more = await get<{ events: Activity[]; latest_seq: number }>(`/sessions/${id}/events`, { after }, abort.signal);
            // Numbers begin again with an opening.
            if (more.latest_seq < after) after = 0;
            else {
              after = more.events.at(-1)?.seq ?? after;
              setDone((was) => (more.events.length || !was ? [...(was ?? []), ...more.events].slice(-KEPT) : was));
            }
            setError(null);
          } catch (reason) {
            if (isAbort(reason)) return;
            setError(reason);
          }
        await pause(EVERY_MS, abort.signal);
      }
    };
    void loop();
    return () => abort.abort();
  }, [id]);

  const rows: Row[] = [
    ...(done ?? []).map((event) => ({ key: `a${event.seq}`, at: event.at, op: event.op, target: event.target, detail: event.detail, ok: event.ok, duration: event.duration_ms, life: false })),
    ...feed.value.filter((event) => event.session === id).map((event) => ({ key: `f${event.seq}`, at: event.at, op: event.op, target: '', detail: detailWords(event), ok: event.op !== 'died' && event.op !== 'refused', duration: null, life: true })),
  ].sort((a, b) => b.at - a.at);
  if (error !== null && !done) return <ErrorBox error={error} />;
  if (!done) return <Loading what="activity" />;
  return (
    <Table
      label="Activity"
      columns={COLUMNS}
      rows={rows}
      rowKey={(row) => row.key}
      empty={
        <Empty title="Nothing happened yet" icon="events">
          Commands, file operations, sleep and wake of this session appear here within a second.
        </Empty>
      }
    />
  );
};
