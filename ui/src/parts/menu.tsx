// A button with further actions behind it. Arrow keys go through them, Escape closes.
import { useEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './icons';

export interface MenuItem {
  label: string;
  danger?: boolean;
  disabled?: boolean;
  action: () => void;
}

export const Menu = ({ label, items, text }: { label: string; items: MenuItem[]; text?: string }) => {
  const [at, setAt] = useState<{ top: number; right: number } | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);

  const close = (focus = true) => {
    setAt(null);
    if (focus) button.current?.focus();
  };
  const open = () => {
    const box = button.current!.getBoundingClientRect();
    const height = items.length * 34 + 12;
    setAt({ top: box.bottom + height > innerHeight ? Math.max(4, box.top - height) : box.bottom + 4, right: Math.max(4, document.documentElement.clientWidth - box.right) });
  };
  useEffect(() => {
    if (!at) return undefined;
    list.current?.querySelector<HTMLElement>('button:not(:disabled)')?.focus();
    const outside = (event: Event) => {
      if (!list.current?.contains(event.target as Node) && !button.current?.contains(event.target as Node)) close(false);
    };
    const moved = () => close(false);
    document.addEventListener('pointerdown', outside);
    addEventListener('scroll', moved, true);
    addEventListener('resize', moved);
    return () => {
      document.removeEventListener('pointerdown', outside);
      removeEventListener('scroll', moved, true);
      removeEventListener('resize', moved);
    };
  }, [at]);
  const keys = (event: KeyboardEvent) => {
    const all = [...list.current!.querySelectorAll<HTMLElement>('button:not(:disabled)')];
    const here = all.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: -1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      all.at(to % all.length)?.focus();
    } else if (event.key === 'Escape' || event.key === 'Tab') {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  };
  return (
    <span class="menu">
      <button ref={button} type="button" class={text ? '' : 'bare'} aria-haspopup="menu" aria-expanded={at !== null} aria-label={label} onClick={() => (at ? close() : open())}>
        {text ?? <Icon name="more" />}
      </button>
      {at && (
        <div ref={list} class="menu-list" role="menu" aria-label={label} style={{ top: `${at.top}px`, right: `${at.right}px` }} onKeyDown={keys}>
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              class={item.danger ? 'danger-text' : ''}
              disabled={item.disabled}
              onClick={() => {
                close();
                item.action();
              }}
            >
              {item.label}
            </button>
          ))}
        </div>
      )}
    </span>
  );
};
