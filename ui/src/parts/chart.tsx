// A chart over time. uPlot draws it on a canvas; the words beside it say the same.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { dark } from '../lib/theme';

export interface Series {
  label: string;
  values: (number | null)[];
  // Of the page's own colours.
  colour: '--accent' | '--good' | '--warn' | '--bad' | '--ice' | '--quiet';
  bars?: boolean;
}

interface Props {
  label: string;
  times: number[];
  series: Series[];
  format: (value: number | null) => string;
}

const HEIGHT = 150;

function options(props: Props, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  return {
    width,
    height: HEIGHT,
    cursor: { y: false, points: { size: 6 } },
    legend: { show: true, live: true },
    scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, space: 70, values: [[3600 * 24, '{DD}.{MM}.', null, null, null, null, null, null, 1], [60, '{HH}:{mm}', null, null, null, null, null, null, 1], [1, '{HH}:{mm}:{ss}', null, null, null, null, null, null, 1]] },
      { ...axis, size: 62, space: 32, values: (_, splits) => splits.map((value) => props.format(value)) },
    ],
    series: [
      { value: (_, at) => (at ? new Date(at * 1000).toLocaleTimeString() : '–') },
      ...props.series.map((series) => ({
        label: series.label,
        stroke: colour(series.colour),
        width: 1.5,
        spanGaps: false,
        points: { show: false },
        value: (_: uPlot, value: number | null) => props.format(value),
        ...(series.bars ? { paths: uPlot.paths.bars!({ size: [0.7, 20] }), fill: `${colour(series.colour)}` } : { fill: `${colour(series.colour)}1c` }),
      })),
    ],
  };
}

export const Chart = (props: Props) => {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data = [props.times, ...props.series.map((series) => series.values)] as uPlot.AlignedData;
  const isDark = dark.value;

  useEffect(() => {
    const made = new uPlot(options(props, host.current!.clientWidth), data, host.current!);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: host.current!.clientWidth, height: HEIGHT }));
    watch.observe(host.current!);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [isDark]);
  useEffect(() => {
    plot.current?.setData(data);
  });
  const last = props.series.map((series) => `${series.label} ${props.format(series.values.at(-1) ?? null)}`).join(', ');
  return <div class="chart" ref={host} role="img" aria-label={`${props.label}, now: ${last}`} />;
};
