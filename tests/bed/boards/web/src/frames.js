// What Prometheus answered, as Grafana's data source and its transformations hand it to a panel.
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  FieldType,
  standardFieldConfigEditorRegistry,
  standardEditorsRegistry,
  standardTransformers,
  standardTransformersRegistry,
  toDataFrame,
  transformDataFrame,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';

const STANDARD = [
  'displayName',
  'unit',
  'min',
  'max',
  'decimals',
  'noValue',
  'links',
  'mappings',
  'thresholds',
  'color',
  'filterable',
  'fieldMinMax',
];
const CUSTOM = [
  'align',
  'axisBorderShow',
  'axisCenteredZero',
  'axisColorMode',
  'axisLabel',
  'axisPlacement',
  'axisSoftMax',
  'axisSoftMin',
  'axisWidth',
  'barAlignment',
  'barWidthFactor',
  'cellOptions',
  'drawStyle',
  'fillBelowTo',
  'fillOpacity',
  'filterable',
  'gradientMode',
  'hidden',
  'hideFrom',
  'insertNulls',
  'inspect',
  'lineInterpolation',
  'lineStyle',
  'lineWidth',
  'minWidth',
  'pointSize',
  'scaleDistribution',
  'showPoints',
  'showValues',
  'spanNulls',
  'stacking',
  'thresholdsStyle',
  'transform',
  'width',
  'wrapText',
];
// What Grafana's own panels start from.
const COLOURS = { timeseries: 'palette-classic' };
const LINE = {
  drawStyle: 'line',
  lineInterpolation: 'linear',
  lineWidth: 1,
  fillOpacity: 0,
  gradientMode: 'none',
  pointSize: 5,
  showPoints: 'auto',
  spanNulls: false,
  axisPlacement: 'auto',
  axisColorMode: 'text',
  axisLabel: '',
  scaleDistribution: { type: 'linear' },
  stacking: { mode: 'none', group: 'A' },
  thresholdsStyle: { mode: 'off' },
  hideFrom: { legend: false, tooltip: false, viz: false },
};

const property = (path, isCustom) => ({
  id: isCustom ? `custom.${path}` : path,
  path,
  name: path,
  isCustom,
  process: (value) => value,
  settings: {},
  editor: () => null,
  override: () => null,
  // An axis of times has no name.
  shouldApply: (field) => path !== 'axisLabel' || ![FieldType.time, FieldType.string].includes(field.type),
});

/** Tell Grafana's libraries what its server would: the properties of fields, and the transformations. */
export function register() {
  standardEditorsRegistry.setInit(() => []);
  standardFieldConfigEditorRegistry.setInit(() => [
    ...STANDARD.map((path) => property(path, false)),
    ...CUSTOM.map((path) => property(path, true)),
  ]);
  standardTransformersRegistry.setInit(() =>
    [...new Map(Object.values(standardTransformers).map((each) => [each.id, each])).values()].map((each) => ({
      id: each.id,
      name: each.name,
      transformation: () => Promise.resolve(each),
      editor: () => null,
    })),
  );
}

/** Return a panel's frames, transformed and with its field configuration. `answers`: one for each query. */
export async function framesOf(panel, answers, step, theme) {
  const form = panel.targets?.[0]?.format;
  const raw =
    form === 'table'
      ? answers.filter(({ series }) => series.length).map((each) => tableFrame(each, answers.length))
      : answers.flatMap((each) => seriesFrames(each, step, form));
  const transformed = await lastValueFrom(transformDataFrame(panel.transformations ?? [], raw));
  const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
  const line = panel.type === 'timeseries' ? LINE : {};
  const found = applyFieldOverrides({
    data: transformed,
    fieldConfig: {
      defaults: {
        color: { mode: COLOURS[panel.type] ?? 'thresholds' },
        ...defaults,
        thresholds: based(defaults.thresholds),
        custom: { ...line, ...defaults.custom },
      },
      overrides: overrides.map((each) => ({
        ...each,
        properties: each.properties.map((one) => (one.id === 'thresholds' ? { ...one, value: based(one.value) } : one)),
      })),
    },
    fieldConfigRegistry: standardFieldConfigEditorRegistry,
    replaceVariables: (text) => text,
    theme,
    timeZone: 'utc',
  });
  cacheFieldDisplayNames(found);
  return found;
}

/** The lowest step has no value in JSON. */
const based = (thresholds) => ({
  mode: 'absolute',
  ...thresholds,
  steps: (thresholds?.steps ?? [{ value: null, color: 'green' }]).map((step) => ({
    ...step,
    value: step.value ?? -Infinity,
  })),
});

function seriesFrames({ refId, legend, series }, step, form) {
  const found = form === 'heatmap' ? apart(series) : series;
  return found.map(({ metric, values: answered }) => {
    const name = nameOf(legend, metric);
    const values = gaps(answered, step);
    return toDataFrame({
      refId,
      name,
      fields: [
        { name: 'Time', type: FieldType.time, values: values.map(([at]) => at * 1000), config: {} },
        {
          name: 'Value',
          type: FieldType.number,
          labels: metric,
          values: values.map(([, value]) => value),
          config: { displayNameFromDS: name },
        },
      ],
    });
  });
}

/** Where a point is missing, and where a value is no number, nothing is drawn. */
function gaps(answered, step) {
  const found = [];
  for (const [at, text] of answered) {
    const last = found.at(-1);
    if (last && at - last[0] > 1.5 * step) found.push([last[0] + step, null]);
    found.push([at, Number.isFinite(Number(text)) ? Number(text) : null]);
  }
  return found;
}

function nameOf(legend, metric) {
  if (legend && legend !== '__auto') return legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? '');
  const { __name__: name = '', ...labels } = metric;
  const inner = Object.entries(labels)
    .map(([label, value]) => `${label}="${value}"`)
    .join(', ');
  return inner ? `${name}{${inner}}` : name || 'Value';
}

/** Buckets are counted up to their bound; a heat map shows what is between two bounds. */
function apart(series) {
  const bound = ({ metric: { le } }) => (le === '+Inf' ? Infinity : Number(le));
  const ordered = [...series].sort((one, other) => bound(one) - bound(other));
  return ordered.map((one, place) => {
    const below = new Map(place ? ordered[place - 1].values : []);
    return {
      ...one,
      values: one.values.map(([at, text]) => [at, Math.max(0, Number(text) - Number(below.get(at) ?? 0))]),
    };
  });
}

function tableFrame({ refId, series }, count) {
  const labels = [...new Set(series.flatMap(({ metric }) => Object.keys(metric)))].sort();
  const last = series.map(({ values }) => values.at(-1));
  return toDataFrame({
    refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: last.map(([at]) => at * 1000), config: {} },
      ...labels.map((label) => ({
        name: label,
        type: FieldType.string,
        values: series.map(({ metric }) => metric[label] ?? ''),
        config: {},
      })),
      {
        name: count > 1 ? `Value #${refId}` : 'Value',
        type: FieldType.number,
        values: last.map(([, text]) => Number(text)),
        config: {},
      },
    ],
  });
}
