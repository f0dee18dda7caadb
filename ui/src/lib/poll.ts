// Something asked again and again while a view is there and seen.
import { useEffect, useRef, useState } from 'preact/hooks';
import { isAbort, pause } from './api';

export interface Polled<T> {
  value: T | null;
  error: unknown;
  refresh: () => void;
}

export function usePoll<T>(ask: (signal: AbortSignal) => Promise<T>, everyMs: number, keys: unknown[]): Polled<T> {
  const [value, setValue] = useState<T | null>(null);
  const [error, setError] = useState<unknown>(null);
  const wake = useRef<() => void>(() => undefined);

  useEffect(() => {
    const abort = new AbortController();
    const loop = async () => {
      while (!abort.signal.aborted) {
        if (!document.hidden)
          try {
            const got = await ask(abort.signal);
            if (abort.signal.aborted) return;
            setValue(got);
            setError(null);
          } catch (reason) {
            if (!isAbort(reason) && !abort.signal.aborted) setError(reason);
          }
        const early = new AbortController();
        wake.current = () => early.abort();
        await pause(everyMs, AbortSignal.any([abort.signal, early.signal]));
      }
    };
    void loop();
    return () => abort.abort();
  }, keys);
  return { value, error, refresh: () => wake.current() };
}
