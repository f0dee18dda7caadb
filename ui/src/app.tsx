// The frame around the views: navigation, what is wrong right now, and who may look at all.
import { useEffect, useRef } from 'preact/hooks';
import icon from '../icon.svg';
import { reachable, signedIn, signOut } from './lib/api';
import { plural } from './lib/format';
import { hrefTo, place } from './lib/router';
import { dark, toggleTheme } from './lib/theme';
import { Dialogs } from './parts/dialog';
import { Icon, type IconName } from './parts/icons';
import { lazy } from './parts/lazy';
import { Toasts } from './parts/toast';
import { problems } from './lib/problems';
import { SignIn } from './views/signin';

const VIEWS: { view: string; title: string; icon: IconName }[] = [
  { view: 'overview', title: 'Overview', icon: 'overview' },
  { view: 'sessions', title: 'Sessions', icon: 'sessions' },
  { view: 'workspaces', title: 'Workspaces', icon: 'workspaces' },
  { view: 'events', title: 'Events', icon: 'events' },
  { view: 'policy', title: 'Policy', icon: 'policy' },
];

const Overview = lazy('overview', async () => (await import('./views/overview')).Overview);
const Sessions = lazy('sessions', async () => (await import('./views/sessions')).Sessions);
const SessionView = lazy('session', async () => (await import('./views/session')).SessionView);
const Workspaces = lazy('workspaces', async () => (await import('./views/workspaces')).Workspaces);
const WorkspaceView = lazy('workspace', async () => (await import('./views/workspace')).WorkspaceView);
const Events = lazy('events', async () => (await import('./views/events')).Events);
const PolicyView = lazy('policy', async () => (await import('./views/policy')).PolicyView);

const Current = () => {
  const { view, id } = place.value;
  if (view === 'sessions') return id ? <SessionView key={id} /> : <Sessions />;
  if (view === 'workspaces') return id ? <WorkspaceView key={id} /> : <Workspaces />;
  if (view === 'events') return <Events />;
  if (view === 'policy') return <PolicyView />;
  return <Overview />;
};

const Navigation = () => {
  const count = problems.value.length + (reachable.value ? 0 : 1);
  const worst = !reachable.value || problems.value.some((problem) => problem.level === 'bad') ? 'bad' : count ? 'warn' : '';
  return (
    <header class="side">
      <a class="brand" href={hrefTo('overview')} aria-label="Berth">
        <img src={icon} alt="" width="24" height="24" />
        <span>Berth</span>
      </a>
      <nav aria-label="Views">
        {VIEWS.map(({ view, title, icon }) => (
          <a key={view} href={hrefTo(view)} aria-current={place.value.view === view ? 'page' : undefined}>
            <Icon name={icon} />
            <span>{title}</span>
            {view === 'overview' && worst && <i class={`dot dot-${worst}`} role="img" aria-label={plural(count, 'problem')} />}
          </a>
        ))}
      </nav>
      <div class="side-end">
        <button type="button" class="bare" aria-label={dark.value ? 'Use light colours' : 'Use dark colours'} title={dark.value ? 'Light' : 'Dark'} onClick={toggleTheme}>
          <Icon name={dark.value ? 'sun' : 'moon'} />
        </button>
        <button type="button" class="bare" aria-label="Sign out" title="Sign out" onClick={() => signOut()}>
          <Icon name="leave" />
        </button>
      </div>
    </header>
  );
};

export const App = () => {
  const main = useRef<HTMLElement>(null);
  const { view, id } = place.value;

  // "/" goes to the filter of the view, as in many programs.
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || target.closest('input, textarea, select, dialog, .editor, .xterm')) return;
      const box = document.querySelector<HTMLInputElement>('main input[type=search]');
      if (!box) return;
      event.preventDefault();
      box.select();
    };
    addEventListener('keydown', keys);
    return () => removeEventListener('keydown', keys);
  }, []);
  useEffect(() => {
    const title = VIEWS.find((entry) => entry.view === view)?.title ?? 'Overview';
    document.title = `${id || title} – Berth`;
    main.current?.focus({ preventScroll: true });
  }, [view, id, signedIn.value]);
  return (
    <>
      {signedIn.value ? (
        <div class="frame">
          <Navigation />
          <main ref={main} tabIndex={-1}>
            {!reachable.value && (
              <div class="notice notice-bad" role="alert">
                <Icon name="warning" />
                <p>The broker does not answer. What you see is from before; the page keeps trying.</p>
              </div>
            )}
            <Current />
          </main>
        </div>
      ) : (
        <SignIn />
      )}
      <Dialogs />
      <Toasts />
    </>
  );
};
