// One stored workspace: its files as they lie on the disk, and what may be done to it.
import { get } from '../lib/api';
import { bytes, number } from '../lib/format';
import { go, hrefTo, place } from '../lib/router';
import { usePoll } from '../lib/poll';
import type { Workspace } from '../lib/types';
import { askFork, openOn } from '../parts/actions';
import { Menu } from '../parts/menu';
import { Ago, Empty, ErrorBox, Facts, Loading, WorkButton } from '../parts/small';
import { Snapshots } from '../parts/snapshots';
import { Files } from './files';
import { workspaceActions } from './workspaces';
import { ApiError } from '../lib/api';
import './session.css';

const TABS = [
  ['files', 'Files'],
  ['info', 'Info'],
] as const;

export const WorkspaceView = () => {
  const { id, tab: wanted } = place.value;
  const tab = wanted === 'info' ? 'info' : 'files';
  const { value, error, refresh } = usePoll((signal) => get<Workspace>(`/workspaces/${encodeURIComponent(id)}`, {}, signal), 5000, [id]);

  if (!value) {
    if (error instanceof ApiError && error.status === 404)
      return (
        <div class="view">
          <h1>{id}</h1>
          <div class="card">
            <Empty title="There is no such workspace" icon="workspaces">
              It was purged, or the TTL took it. All that is stored is under <a href={hrefTo('workspaces')}>Workspaces</a>.
            </Empty>
          </div>
        </div>
      );
    return error ? <div class="view"><h1>{id}</h1><ErrorBox error={error} retry={refresh} /></div> : <Loading what="workspace" />;
  }
  const changed = () => {
    refresh();
    get(`/workspaces/${encodeURIComponent(id)}`).catch((reason) => reason instanceof ApiError && reason.status === 404 && go('workspaces'));
  };
  return (
    <div class="view view-session">
      <div class="view-head">
        <div class="crumbs">
          <a href={hrefTo('workspaces')}>Workspaces</a>
          <span class="quiet" aria-hidden="true">/</span>
          <h1 class="mono">{id}</h1>
        </div>
        {value.open ? <span class="state"><i aria-hidden="true" />Open</span> : <span class="state state-asleep"><i aria-hidden="true" />Closed</span>}
        {value.pinned && <span class="tag">pinned</span>}
        <span class="head-actions">
          {value.open ? (
            <a class="button" href={hrefTo('sessions', id, 'files')}>
              Go to its session
            </a>
          ) : (
            <WorkButton class="primary" onWork={() => openOn(value)}>
              Open a session on it
            </WorkButton>
          )}
          <Menu label="More actions" text="More" items={[...workspaceActions(value, changed).slice(1), { label: 'Fork…', action: () => askFork('workspaces', id) }]} />
        </span>
      </div>
      <nav class="tabs" aria-label="Parts of the workspace">
        {TABS.map(([key, title]) => (
          <a key={key} href={hrefTo('workspaces', id, key)} aria-current={key === tab ? 'page' : undefined}>
            {title}
          </a>
        ))}
      </nav>
      {tab === 'files' ? (
        <Files place={{ kind: 'workspaces', id }} writable={false} />
      ) : (
        <div class="cards">
          <section class="card">
            <h2>Workspace</h2>
            <Facts
              rows={[
                ['Size', bytes(value.size_bytes)],
                ['Entries', number(value.file_count)],
                ['Measured', <Ago at={value.measured_at} />],
                ['Tenant', value.tenant ?? 'none'],
                ['Runtime', value.runtime ?? 'not known'],
                ['Created', <Ago at={value.created_at} />],
                ['Last use', <Ago at={value.last_use} />],
                ['TTL takes it', value.expires_at ? <Ago at={value.expires_at} /> : value.pinned ? 'never: it is pinned' : value.open ? 'not while it is open' : 'never: no TTL is set'],
              ]}
            />
          </section>
          <Snapshots kind="workspaces" id={id} canRestore={!value.open} />
        </div>
      )}
    </div>
  );
};
