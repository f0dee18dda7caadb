// Small parts that every view uses.
import { cloneElement, type ComponentChildren, type VNode } from 'preact';
import { useId, useState } from 'preact/hooks';
import { ApiError, isAway, reachable, signedIn } from '../lib/api';
import { ago, exactTime } from '../lib/format';
import { now, STATE_TEXT, stateOf } from '../lib/state';
import type { Session } from '../lib/types';
import { Icon, type IconName } from './icons';

// Local and relative; the exact moment on hover.
export const Ago = ({ at }: { at: number | null | undefined }) =>
  at ? (
    <time dateTime={new Date(at * 1000).toISOString()} title={exactTime(at)}>
      {ago(at, now.value)}
    </time>
  ) : (
    <span class="quiet">–</span>
  );

export const StateBadge = ({ session }: { session: Session }) => {
  const state = stateOf(session);
  return (
    <span class={`state state-${state}`}>
      <i aria-hidden="true" />
      {STATE_TEXT[state]}
    </span>
  );
};

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

// That the broker is away is said above the view already; `always` is for what lies over that.
export const ErrorBox = ({ error, retry, always = false }: { error: unknown; retry?: () => void; always?: boolean }) => {
  if (isAway(error) && !reachable.value && signedIn.value && !always)
    return (
      <p class="loading" role="status">
        <span class="spinner" aria-hidden="true" /> Waiting for the broker…
      </p>
    );
  const hint = error instanceof ApiError ? error.hint : '';
  return (
    <div class="notice notice-bad" role="alert">
      <Icon name="warning" />
      <div>
        <p>{messageOf(error)}</p>
        {hint && <p class="quiet">{hint}</p>}
      </div>
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
};

export const Empty = ({ title, children, icon = 'other' }: { title: string; children?: ComponentChildren; icon?: IconName }) => (
  <div class="empty">
    <Icon name={icon} />
    <p class="empty-title">{title}</p>
    {children && <div class="quiet">{children}</div>}
  </div>
);

export const Loading = ({ what }: { what: string }) => (
  <p class="loading" role="status">
    <span class="spinner" aria-hidden="true" /> Loading {what}…
  </p>
);

// How much of something is used; without a limit only how much.
export const Meter = ({ label, used, limit, text, none = 'no ceiling' }: { label: string; used: number | null; limit: number | null; text?: string; none?: string }) => {
  const share = used !== null && limit ? used / limit : null;
  const level = share === null ? '' : share >= 0.95 ? 'full' : share >= 0.8 ? 'high' : '';
  return (
    <div class={`meter ${level}`}>
      <div class="meter-head">
        <span>{label}</span>
        <b>{text ?? `${used ?? '–'}${limit ? ` of ${limit}` : ''}`}</b>
      </div>
      {share !== null ? (
        <div class="meter-bar" role="meter" aria-label={label} aria-valuenow={Math.round(share * 100)} aria-valuemin={0} aria-valuemax={100} aria-valuetext={text ?? `${used} of ${limit}`}>
          <i style={{ width: `${Math.min(100, share * 100)}%` }} />
        </div>
      ) : (
        <div class="meter-none quiet">{none}</div>
      )}
    </div>
  );
};

// A button whose work takes a while: it says so, and cannot be pressed twice.
export const WorkButton = ({ onWork, class: name, children, disabled, label }: { onWork: () => Promise<unknown>; class?: string; children: ComponentChildren; disabled?: boolean; label?: string }) => {
  const [working, setWorking] = useState(false);
  const press = async () => {
    setWorking(true);
    try {
      await onWork();
    } finally {
      setWorking(false);
    }
  };
  return (
    <button type="button" class={name} aria-label={label} disabled={disabled || working} aria-busy={working} onClick={press}>
      {working && <span class="spinner" aria-hidden="true" />}
      {children}
    </button>
  );
};

// What may be wider than the window: reached by keys as well.
export const Scroll = ({ label, children }: { label: string; children: ComponentChildren }) => (
  <div class="scroll-x" tabIndex={0} role="region" aria-label={label}>
    {children}
  </div>
);

// One control with its name and what else is to be said of it.
export const Field = ({ label, hint, children }: { label: string; hint?: string; children: VNode }) => {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {cloneElement(children, { id, 'aria-describedby': hint ? `${id}-hint` : undefined })}
      {hint && (
        <small id={`${id}-hint`} class="quiet">
          {hint}
        </small>
      )}
    </div>
  );
};

// `short`: values of a word or two, behind long names.
export const Facts = ({ rows, short = false }: { rows: [string, ComponentChildren][]; short?: boolean }) => (
  <dl class={short ? 'facts facts-short' : 'facts'}>
    {rows.map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>{value ?? '–'}</dd>
      </div>
    ))}
  </dl>
);
