// Panels that Grafana's published components draw, put together as its own panels do.
import { getDisplayValueAlignmentFactors, getFieldDisplayValues, VizOrientation } from '@grafana/data';
import { BarGauge, BigValue, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { Heatmap, Spans, StatusHistory } from './plain.jsx';

const Lines = ({ panel, frames, width, height, range, theme, marks }) => (
  <TimeSeries
    frames={frames}
    width={width}
    height={height}
    timeRange={range}
    timeZone="utc"
    options={{}}
    legend={{ displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [], ...panel.options?.legend }}
  >
    {(config) => {
      config.addHook('draw', (plot) => drawMarks(plot, marks, theme));
      return null;
    }}
  </TimeSeries>
);

/** Annotations, as Grafana shows them: a dashed line where something happened. */
function drawMarks(plot, marks, theme) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.setLineDash([5, 5]);
  ctx.lineWidth = 1;
  for (const { at, colour } of marks) {
    const x = plot.valToPos(at, 'x', true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = theme.visualization.getColorByName(colour);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function repeated(draw) {
  return ({ panel, frames, width, height, theme }) => {
    const values = () =>
      getFieldDisplayValues({
        fieldConfig: panel.fieldConfig ?? { defaults: {}, overrides: [] },
        reduceOptions: { calcs: ['lastNotNull'], values: false, ...panel.options?.reduceOptions },
        replaceVariables: (text) => text,
        theme,
        data: frames,
        sparkline: panel.options?.graphMode === 'area',
        timeZone: 'utc',
      });
    const orientation = panel.options?.orientation ?? VizOrientation.Auto;
    return (
      <VizRepeater
        source={frames}
        width={width}
        height={height}
        renderCounter={0}
        getValues={values}
        orientation={orientation}
        autoGrid={panel.type === 'stat'}
        itemSpacing={panel.type === 'stat' ? 3 : 8}
        minVizHeight={16}
        maxVizHeight={panel.options?.maxVizHeight ?? 300}
        minVizWidth={8}
        getAlignmentFactors={(all) => getDisplayValueAlignmentFactors(all)}
        renderValue={(each) => draw(panel, each, theme)}
      />
    );
  };
}

const Stat = repeated(({ options = {} }, { value, width, height, count, alignmentFactors }, theme) => (
  <BigValue
    value={value.display}
    count={count}
    width={width}
    height={height}
    alignmentFactors={alignmentFactors}
    theme={theme}
    sparkline={value.sparkline}
    colorMode={options.colorMode ?? 'value'}
    graphMode={options.graphMode ?? 'none'}
    justifyMode={options.justifyMode ?? 'auto'}
    textMode={options.textMode ?? 'auto'}
    disableWideLayout={options.wideLayout === false}
    text={options.text}
  />
));

const Bars = repeated(({ options = {} }, { value, width, height, orientation, alignmentFactors }, theme) => (
  <BarGauge
    value={value.display}
    width={width}
    height={height}
    orientation={orientation}
    alignmentFactors={alignmentFactors}
    theme={theme}
    field={value.field}
    display={value.view?.getFieldDisplayProcessor(value.colIndex)}
    displayMode={options.displayMode ?? 'gradient'}
    showUnfilled={options.showUnfilled ?? true}
    valueDisplayMode={options.valueMode ?? 'color'}
    namePlacement={options.namePlacement ?? 'auto'}
    text={options.text}
    itemSpacing={8}
  />
));

const Rows = ({ panel, frames, width, height, range }) => (
  <TableNG
    data={frames[0]}
    width={width}
    height={height}
    timeRange={range}
    noHeader={panel.options?.showHeader === false}
    sortBy={panel.options?.sortBy}
    cellHeight={panel.options?.cellHeight ?? 'sm'}
    fieldConfig={panel.fieldConfig}
    getActions={() => []}
    structureRev={1}
    enableVirtualization={false}
  />
);

const Words = ({ panel }) => <div style={{ padding: 8, whiteSpace: 'pre-wrap' }}>{panel.options?.content}</div>;

const KINDS = {
  timeseries: Lines,
  stat: Stat,
  bargauge: Bars,
  table: Rows,
  text: Words,
  heatmap: Heatmap,
  'status-history': StatusHistory,
  'state-timeline': Spans,
};

const empty = (frames) => !frames.some((frame) => frame.length);

/** One panel's inside; throws for a kind that is not known here. */
export function Inside({ panel, frames, ...rest }) {
  const Kind = KINDS[panel.type];
  if (!Kind) throw new Error(`a panel of a kind that can't be drawn here: ${panel.type}`);
  const ownWords = ['stat', 'bargauge'].includes(panel.type);
  if (panel.type !== 'text' && empty(frames) && !ownWords) {
    return (
      <div style={{ display: 'grid', placeItems: 'center', height: rest.height, opacity: 0.7 }}>
        {panel.fieldConfig?.defaults?.noValue ?? 'No data'}
      </div>
    );
  }
  return <Kind panel={panel} frames={frames} {...rest} />;
}
