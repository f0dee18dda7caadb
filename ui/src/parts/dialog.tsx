// Questions that must be answered first. One at a time, in the browser's own modal dialog: it keeps the focus and gives it back.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { isAbort } from '../lib/api';
import { ErrorBox } from './small';

interface Question {
  title: string;
  body: ComponentChildren;
  action: string;
  danger?: boolean;
  // Done when it resolves; when it throws the dialog stays and says why. The signal is for work that may take long: Cancel and Escape end it.
  work: (form: FormData, signal: AbortSignal) => Promise<unknown>;
}

const asked = signal<Question | null>(null);

export const ask = (question: Question): void => {
  asked.value = question;
};

const Body = ({ question }: { question: Question }) => {
  const dialog = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState<unknown>(null);
  const [working, setWorking] = useState(false);
  const abort = useRef(new AbortController());

  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const close = () => dialog.current?.close();
  const closed = () => {
    abort.current.abort();
    asked.value = null;
  };
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    setWorking(true);
    setError(null);
    try {
      await question.work(form, abort.current.signal);
      close();
    } catch (reason) {
      if (!isAbort(reason)) setError(reason);
    } finally {
      setWorking(false);
    }
  };
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="dialog-title" onClose={closed}>
      <form onSubmit={submit}>
        <h2 id="dialog-title">{question.title}</h2>
        <div class="dialog-body">{question.body}</div>
        {error !== null && <ErrorBox error={error} always />}
        <div class="dialog-actions">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class={question.danger ? 'danger' : 'primary'} disabled={working} aria-busy={working}>
            {working && <span class="spinner" aria-hidden="true" />}
            {question.action}
          </button>
        </div>
      </form>
    </dialog>
  );
};

export const Dialogs = () => (asked.value ? <Body key={asked.value.title} question={asked.value} /> : null);
