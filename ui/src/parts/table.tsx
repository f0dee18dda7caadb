// A table of any length: only the rows that can be seen are in the document. Rows are of one height, so that places are sums.
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { leftOut, narrow } from '../lib/screen';
import { Icon } from './icons';

const ROW_PX = 40;
const AROUND = 5;

export interface Column<T> {
  key: string;
  title: string;
  // What it is sorted by; without it the column is not sortable.
  by?: (row: T) => string | number;
  cell: (row: T) => ComponentChildren;
  align?: 'end';
  // Left out on narrow screens: 1 on phones, 2 before that.
  less?: 1 | 2;
  // A second line for those, of what is left out.
  under?: (row: T) => ComponentChildren;
  width?: string;
  // Has more room than the others that have no width.
  wide?: boolean;
  // Is never cut.
  whole?: boolean;
}

export interface Sort {
  key: string;
  down: boolean;
}

export interface Group<T> {
  name: string;
  head: ComponentChildren;
  rows: T[];
}

export function sorted<T>(rows: T[], columns: Column<T>[], sort: Sort): T[] {
  const by = columns.find((column) => column.key === sort.key)?.by;
  if (!by) return rows;
  const sign = sort.down ? -1 : 1;
  return rows
    .map((row) => [by(row), row] as const)
    .sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0))
    .map(([, row]) => row);
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  rowKey: (row: T) => string;
  sort?: Sort;
  onSort?: (sort: Sort) => void;
  groups?: Group<T>[] | null;
  folded?: Set<string>;
  onFold?: (name: string) => void;
  empty: ComponentChildren;
  onEnd?: () => void;
  // Keep the newest row in sight as long as the reader is at the top.
  selected?: string;
}

type Line<T> = { group: Group<T> } | { row: T };

// A component that reads a signal is drawn anew only when that or one of these values changes: what stays while somebody types costs nothing.
function TableRow<T>({ row, columns, index, isSelected }: { row: T; columns: Column<T>[]; index: number; isSelected: boolean }) {
  const isNarrow = narrow.value;
  return (
    <tr aria-rowindex={index} class={isSelected ? 'selected' : ''}>
      {columns.map((column) => (
        <td key={column.key} class={`${column.align ?? ''} ${column.whole ? 'whole' : ''}`}>
          {column.cell(row)}
          {column.under && isNarrow && <span class="under quiet clip">{column.under(row)}</span>}
        </td>
      ))}
    </tr>
  );
}

export function Table<T>({ label, columns: all, rows, rowKey, sort, onSort, groups, folded, onFold, empty, onEnd, selected }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  // As they were last seen: to ask the document would have it laid out in the middle of every key.
  const size = useRef({ top: 0, height: 0 });
  const columns = useMemo(() => all.filter((column) => !column.less || column.less + leftOut.value <= 2), [all, leftOut.value]);
  const [view, setView] = useState({ from: 0, to: 40 });
  const lines: Line<T>[] = groups ? groups.flatMap((group) => [{ group }, ...(folded?.has(group.name) ? [] : group.rows.map((row) => ({ row })))]) : rows.map((row) => ({ row }));

  const look = () => {
    const { top, height } = size.current;
    const from = Math.max(0, Math.floor(top / ROW_PX) - AROUND);
    const to = Math.ceil((top + height) / ROW_PX) + AROUND;
    setView((was) => (was.from === from && was.to === to ? was : { from, to }));
    if (onEnd && to >= lines.length) onEnd();
  };
  const current = useRef(look);
  current.current = look;
  useLayoutEffect(look, [lines.length]);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => {
      size.current.height = box.current!.clientHeight;
      current.current();
    });
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  const scrolled = () => {
    size.current.top = box.current!.scrollTop;
    look();
  };

  // Up and down go through the first link or button of the rows.
  const keys = (event: KeyboardEvent) => {
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    const row = (event.target as HTMLElement).closest('tr');
    const next = event.key === 'ArrowDown' ? row?.nextElementSibling : row?.previousElementSibling;
    const target = next?.querySelector<HTMLElement>('a, button');
    if (!target || (event.target as HTMLElement).closest('[role=menu]')) return;
    event.preventDefault();
    target.focus();
    target.scrollIntoView({ block: 'nearest' });
  };

  const from = Math.min(view.from, Math.max(0, lines.length - 1));
  const shown = lines.slice(from, view.to);
  return (
    <div ref={box} class="table-box" onScroll={scrolled} onKeyDown={keys} tabIndex={0} role="region" aria-label={label}>
      <table aria-rowcount={lines.length + 1}>
        <colgroup>
          {columns.map((column) => (
            <col key={column.key} class={column.wide ? 'wide' : ''} style={column.width ? { width: column.width } : {}} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => {
              const sorting = sort?.key === column.key;
              return (
                <th key={column.key} scope="col" class={column.align} aria-sort={sorting ? (sort.down ? 'descending' : 'ascending') : undefined}>
                  {column.by && onSort ? (
                    <button type="button" class="sort" onClick={() => onSort({ key: column.key, down: sorting ? !sort.down : false })}>
                      {column.title}
                      {sorting && <span aria-hidden="true">{sort.down ? '↓' : '↑'}</span>}
                    </button>
                  ) : (
                    column.title || <span class="unseen">Actions</span>
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {from > 0 && <tr aria-hidden="true" class="gap" style={{ height: `${from * ROW_PX}px` }}><td colSpan={columns.length} /></tr>}
          {shown.map((line, i) =>
            'group' in line ? (
              <tr key={`group ${line.group.name}`} class="group" aria-rowindex={from + i + 2}>
                <th scope="rowgroup" colSpan={columns.length}>
                  <button type="button" class="bare fold" aria-expanded={!folded?.has(line.group.name)} onClick={() => onFold?.(line.group.name)}>
                    <Icon name="chevron" />
                    {line.group.head}
                  </button>
                </th>
              </tr>
            ) : (
              <TableRow key={rowKey(line.row)} row={line.row} columns={columns} index={from + i + 2} isSelected={selected === rowKey(line.row)} />
            ),
          )}
          {view.to < lines.length && <tr aria-hidden="true" class="gap" style={{ height: `${(lines.length - view.to) * ROW_PX}px` }}><td colSpan={columns.length} /></tr>}
        </tbody>
      </table>
      {lines.length === 0 && empty}
    </div>
  );
}
