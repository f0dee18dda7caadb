// What happens to sessions, service-wide, as it happens.
import { signal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { clockTime, detailWords, exactTime, opWords, plural } from '../lib/format';
import { hrefTo } from '../lib/router';
import { feed, feedLive } from '../lib/state';
import type { FeedEvent } from '../lib/types';
import { Icon } from '../parts/icons';
import { Empty } from '../parts/small';
import { type Column, Table } from '../parts/table';

const BAD = new Set(['died', 'refused', 'over_quota']);
const OPS = ['opened', 'closed', 'purged', 'reaped', 'hibernated', 'frozen', 'thawed', 'woken', 'healed', 'died', 'refused', 'run_started', 'run_ended', 'snapshot', 'restored', 'over_quota', 'within_quota', 'policy', 'tenant'];

const words = signal('');
const op = signal('');

const COLUMNS: Column<FeedEvent>[] = [
  { key: 'at', title: 'Time', cell: (e) => <time dateTime={new Date(e.at * 1000).toISOString()} title={exactTime(e.at)}>{clockTime(e.at)}</time>, width: '6rem' },
  { key: 'op', title: 'Event', cell: (e) => <span class={`tag ${BAD.has(e.op) ? 'tag-bad' : ''}`}>{opWords(e.op)}</span>, width: '8rem' },
  { key: 'session', title: 'Session', cell: (e) => (e.session ? <a class="mono" href={e.op === 'purged' ? hrefTo('workspaces', e.session) : hrefTo('sessions', e.session, 'activity')}>{e.session}</a> : <span class="quiet">–</span>), under: (e) => detailWords(e) || e.tenant },
  { key: 'tenant', title: 'Tenant', cell: (e) => e.tenant ?? <span class="quiet">–</span>, less: 1, width: '10rem' },
  { key: 'detail', title: 'Detail', cell: (e) => <span class="clip" title={e.detail}>{detailWords(e)}</span>, less: 1 },
];

export const Events = () => {
  // While paused what was there then is shown; nothing is lost meanwhile.
  const [paused, setPaused] = useState<FeedEvent[] | null>(null);
  const source = paused ?? feed.value;
  const list = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = source
    .filter((event) => (!op.value || event.op === op.value) && list.every((word) => `${event.op} ${event.session ?? ''} ${event.tenant ?? ''} ${event.detail}`.toLowerCase().includes(word)))
    .reverse();
  const missed = paused ? feed.value.filter((event) => event.seq > (paused.at(-1)?.seq ?? 0)).length : 0;
  return (
    <div class="view view-table">
      <div class="view-head">
        <h1>Events</h1>
        <span class={`state ${paused ? 'state-asleep' : feedLive.value ? '' : 'state-bad'}`} role="status">
          <i aria-hidden="true" />
          {paused ? `Paused${missed ? `, ${missed} new` : ''}` : feedLive.value ? 'Live' : 'Not connected; trying again'}
        </span>
      </div>
      <div class="toolbar">
        <label class="search">
          <span class="unseen">Filter events</span>
          <Icon name="search" />
          <input type="search" placeholder="Filter by session, tenant, detail" value={words.value} onInput={(event) => (words.value = event.currentTarget.value)} spellcheck={false} />
        </label>
        <select aria-label="Kind of event" value={op.value} onChange={(event) => (op.value = event.currentTarget.value)}>
          <option value="">all kinds</option>
          {OPS.map((name) => (
            <option key={name} value={name}>
              {opWords(name)}
            </option>
          ))}
        </select>
        <span class="quiet">{plural(rows.length, 'event')}</span>
        <button type="button" class="end" aria-pressed={paused !== null} onClick={() => setPaused(paused ? null : feed.value)}>
          <Icon name={paused ? 'play' : 'pause'} /> {paused ? 'Go on' : 'Pause'}
        </button>
      </div>
      <Table
        label="Events"
        columns={COLUMNS}
        rows={rows}
        rowKey={(event) => String(event.seq)}
        empty={
          source.length ? (
            <Empty title="No event matches" icon="search">
              Nothing of what is kept here fits the filter.
            </Empty>
          ) : (
            <Empty title="Nothing happened yet" icon="events">
              Sessions that open, sleep, wake, die and close appear here the moment they do.
            </Empty>
          )
        }
      />
    </div>
  );
};
