// One session: its head, and a tab a matter.
import { useEffect } from 'preact/hooks';
import { go, hrefTo, place } from '../lib/router';
import { refreshSessions, sessionOf, sessions, sessionsError, stateOf } from '../lib/state';
import { hibernate, sessionActions, wake } from '../parts/actions';
import { lazy } from '../parts/lazy';
import { Menu } from '../parts/menu';
import { Empty, ErrorBox, Loading, StateBadge, WorkButton } from '../parts/small';
import { Terminals } from './terminals';
import './session.css';

const Files = lazy('files', async () => (await import('./files')).Files);
const Runs = lazy('runs', async () => (await import('./runs')).Runs);
const ActivityView = lazy('activity', async () => (await import('./activity')).ActivityView);
const Info = lazy('info', async () => (await import('./info')).Info);

const TABS = [
  ['terminal', 'Terminal'],
  ['files', 'Files'],
  ['runs', 'Runs'],
  ['activity', 'Activity'],
  ['info', 'Info'],
] as const;

export const SessionView = () => {
  const { id, tab: wanted } = place.value;
  const tab = TABS.some(([key]) => key === wanted) ? wanted : 'terminal';
  const session = sessionOf(id);
  const known = sessions.value !== null;

  useEffect(() => {
    void refreshSessions();
  }, [id]);
  if (!session) {
    if (!known) return sessionsError.value ? <div class="view"><h1>{id}</h1><ErrorBox error={sessionsError.value} retry={() => void refreshSessions()} /></div> : <Loading what="session" />;
    return (
      <div class="view">
        <h1>{id}</h1>
        <div class="card">
          <Empty title="This session is not open" icon="sessions">
            It was closed, or never was. If its files were kept they are <a href={hrefTo('workspaces', id)}>in its workspace</a>; all that is open is under <a href={hrefTo('sessions')}>Sessions</a>.
          </Empty>
        </div>
      </div>
    );
  }
  const state = stateOf(session);
  return (
    <div class="view view-session">
      <div class="view-head">
        <div class="crumbs">
          <a href={hrefTo('sessions')}>Sessions</a>
          <span class="quiet" aria-hidden="true">/</span>
          <h1 class="mono">{id}</h1>
        </div>
        <StateBadge session={session} />
        <span class="quiet">
          {session.runtime}
          {session.tenant ? `, ${session.tenant}` : ''}
        </span>
        <span class="head-actions">
          {state === 'asleep' ? <WorkButton onWork={() => wake(id)}>Wake</WorkButton> : <WorkButton onWork={() => hibernate(id)}>Hibernate</WorkButton>}
          <Menu label="More actions" text="More" items={sessionActions(session, () => go('sessions'))} />
        </span>
      </div>
      <nav class="tabs" aria-label="Parts of the session">
        {TABS.map(([key, title]) => (
          <a key={key} href={hrefTo('sessions', id, key)} aria-current={key === tab ? 'page' : undefined}>
            {title}
          </a>
        ))}
      </nav>
      {tab === 'terminal' && <Terminals session={session} />}
      {tab === 'files' && <Files place={{ kind: 'sessions', id }} writable />}
      {tab === 'runs' && <Runs session={session} />}
      {tab === 'activity' && <ActivityView id={id} />}
      {tab === 'info' && <Info session={session} />}
    </div>
  );
};
