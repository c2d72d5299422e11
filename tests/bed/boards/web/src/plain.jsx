// Kinds of panels that Grafana keeps to itself: drawn plainly here, and said so.
import { dateTimeFormat } from '@grafana/data';

const AXIS = 22;
const NOTE = 14;
const LABEL = 230;
const GRID = 6;

/** The frame of a plain drawing: names at the left, times below, and the note that it is one. */
function Chart({ width, height, range, names, legend, children }) {
  const inner = { left: LABEL, width: width - LABEL - 8, height: height - AXIS - NOTE };
  const row = inner.height / Math.max(1, names.length);
  const [from, to] = [range.from.valueOf(), range.to.valueOf()];
  const x = (at) => inner.left + ((at - from) / (to - from)) * inner.width;
  const times = Array.from({ length: GRID }, (_, place) => from + ((place + 0.5) / GRID) * (to - from));
  return (
    <svg width={width} height={height} fontSize={11} fill="currentColor">
      {names.map((name, place) =>
        row < 9 && place % 2 ? null : (
          <text key={place} x={inner.left - 6} y={(place + 0.5) * row + 4} textAnchor="end">
            {name.length > 38 ? `${name.slice(0, 37)}…` : name}
          </text>
        ),
      )}
      {children({ x, row, inner })}
      {times.map((at) => (
        <text key={at} x={x(at)} y={inner.height + 15} textAnchor="middle" opacity={0.8}>
          {dateTimeFormat(at, { format: 'HH:mm:ss', timeZone: 'utc' })}
        </text>
      ))}
      <text x={4} y={height - 3} fontSize={10} opacity={0.6}>
        drawn plainly here; Grafana does not publish this panel{legend ? ` · ${legend}` : ''}
      </text>
    </svg>
  );
}

const valueField = (frame) => frame.fields.find((field) => field.type === 'number');
const points = (frame) => frame.fields[0].values.map((at, place) => [at, valueField(frame).values[place]]);
const nameOf = (frame) =>
  valueField(frame).state?.displayName ?? valueField(frame).config.displayNameFromDS ?? frame.name;

export function StatusHistory({ frames, width, height, range, step }) {
  const most = Math.max(...frames.flatMap((frame) => points(frame).map(([, value]) => value)));
  const told = frames[0] && valueField(frames[0]).display(most);
  return (
    <Chart
      width={width}
      height={height}
      range={range}
      names={frames.map(nameOf)}
      legend={told && `darkest: ${told.prefix ?? ''}${told.text}${told.suffix ?? ''}`}
    >
      {({ x, row }) =>
        frames.map((frame, place) =>
          points(frame).map(([at, value]) => (
            <rect
              key={`${place} ${at}`}
              x={x(at)}
              y={place * row + 1}
              width={Math.max(1, x(at + step * 1000) - x(at) - 1)}
              height={Math.max(1, row - 2)}
              fill={valueField(frame).display(value).color}
            />
          )),
        )
      }
    </Chart>
  );
}

export function Spans({ frames, width, height, range, step }) {
  return (
    <Chart width={width} height={height} range={range} names={frames.map(nameOf)}>
      {({ x, row }) =>
        frames.map((frame, place) =>
          merged(points(frame), step).map(({ from, to, value }) => {
            const told = valueField(frame).display(value);
            const wide = x(to) - x(from);
            return (
              <g key={`${place} ${from}`}>
                <rect
                  x={x(from)}
                  y={place * row + row * 0.1}
                  width={Math.max(2, wide)}
                  height={row * 0.8}
                  fill={told.color ?? '#888'}
                  opacity={0.85}
                />
                {wide > told.text.length * 7 && row > 13 && (
                  <text x={x(from) + 5} y={(place + 0.5) * row + 4} fill="#111">
                    {told.text}
                  </text>
                )}
              </g>
            );
          }),
        )
      }
    </Chart>
  );
}

/** Points that follow one another with one value are one span; a point that is missing ends it. */
function merged(all, step) {
  const found = [];
  for (const [at, value] of all) {
    const last = found.at(-1);
    if (last && last.value === value && at - last.to <= step * 500) last.to = at + step * 1000;
    else found.push({ from: at, to: at + step * 1000, value });
  }
  return found;
}

export function Heatmap({ panel, frames, width, height, range, step, theme }) {
  const most = Math.max(0, ...frames.flatMap((frame) => points(frame).map(([, value]) => value)));
  const unit = panel.options?.yAxis?.axisLabel || panel.options?.yAxis?.unit || '';
  const rows = [...frames].reverse();
  return (
    <Chart
      width={width}
      height={height}
      range={range}
      names={rows.map((frame) => `≤ ${nameOf(frame)}`)}
      legend={`y: ${unit}, darkest: ${most.toPrecision(3)}`}
    >
      {({ x, row }) =>
        rows.map((frame, place) =>
          points(frame).map(
            ([at, value]) =>
              value > 0 && (
                <rect
                  key={`${place} ${at}`}
                  x={x(at)}
                  y={place * row}
                  width={Math.max(1, x(at + step * 1000) - x(at))}
                  height={row}
                  fill={theme.visualization.getColorByName('orange')}
                  opacity={0.15 + 0.85 * Math.sqrt(value / most)}
                />
              ),
          ),
        )
      }
    </Chart>
  );
}
