// The token: asked for, judged by the broker, and kept in memory.
import { useEffect, useState } from 'preact/hooks';
import icon from '../../icon.svg';
import { ApiError, keptToken, request, signIn, signOut, signOutReason } from '../lib/api';
import { ErrorBox } from '../parts/small';

// A call that only the service token opens.
const judge = (token: string) => request('/policy', { asToken: token });

export const SignIn = () => {
  const [error, setError] = useState<unknown>(null);
  const [working, setWorking] = useState(false);

  const enter = async (token: string, keep: boolean, was = false) => {
    setWorking(true);
    setError(null);
    try {
      // A header carries printable ASCII only; anything else is no token.
      if (!/^[\x21-\x7e]+$/.test(token)) throw new ApiError(401, '');
      await judge(token);
      signIn(token, keep);
    } catch (reason) {
      if (reason instanceof ApiError && reason.status === 401) {
        if (was) signOut();
        setError(new Error(was ? 'The token that this tab had kept is not valid any more.' : 'That is not the service token of this broker.'));
      } else setError(reason);
      setWorking(false);
    }
  };
  useEffect(() => {
    if (keptToken()) void enter(keptToken(), true, true);
  }, []);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    void enter(String(form.get('token')).trim(), form.has('keep'));
  };
  return (
    <main class="signin">
      <form onSubmit={submit} class="card">
        <h1>
          <img src={icon} alt="" width="32" height="32" /> Berth
        </h1>
        <p class="quiet">Sandboxes, their files and their life, at {location.host}.</p>
        <label class="field">
          <span>Service token</span>
          <input name="token" type="password" autocomplete="current-password" required spellcheck={false} aria-describedby="token-help" autofocus />
          <small id="token-help" class="quiet">
            The value of SANDBOXD_TOKEN. A session’s own token does not open this page.
          </small>
        </label>
        <label class="check">
          <input name="keep" type="checkbox" /> Keep it until this tab is closed
        </label>
        {signOutReason.value && !error && <ErrorBox error={new Error(signOutReason.value)} />}
        {error !== null && <ErrorBox error={error} />}
        <button type="submit" class="primary" disabled={working} aria-busy={working}>
          Sign in
        </button>
      </form>
    </main>
  );
};
