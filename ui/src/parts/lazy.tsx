// A part that is loaded when it is first shown.
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, reachable } from '../lib/api';
import { ErrorBox, Loading } from './small';

export function lazy<P extends object>(what: string, load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const [, setReady] = useState(loaded !== null);
    const [error, setError] = useState<unknown>(null);
    const start = () => {
      setError(null);
      load().then(
        (part) => {
          loaded = part;
          setReady(true);
        },
        () => setError(new ApiError(0, `This part of the page (${what}) could not be loaded.`)),
      );
    };
    useEffect(() => {
      if (!loaded) start();
    }, []);
    useEffect(() => {
      if (error && reachable.value) start();
    }, [reachable.value]);
    if (error) return <ErrorBox error={error} retry={start} />;
    if (!loaded) return <Loading what={what} />;
    const Part = loaded;
    return <Part {...props} />;
  };
}
