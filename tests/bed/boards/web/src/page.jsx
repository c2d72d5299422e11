// A board on a page: its panels where they belong, each with the answers to its queries.
import { createTheme, dateTime, ThemeContext } from '@grafana/data';
import { GlobalStyles, PanelChrome } from '@grafana/ui';
import { Component } from 'react';
import { createRoot } from 'react-dom/client';
import { framesOf, register } from './frames.js';
import { Inside } from './panels.jsx';

const COLUMNS = 24;
const WIDTH = 1600;
const ROW = 38; // Grafana's 30 pixels and the gap of 8
const GAP = 8;
const HEAD = 56;
const LOOK = 400; // milliseconds between two looks at whether components still measure themselves and draw again
const LOOKS = [4, 60]; // alike in a row until they are done, and how many at most

/** A panel that fails is told on the console and does not take the others with it. */
class Fence extends Component {
  state = {};

  static getDerivedStateFromError(error) {
    return { error };
  }

  componentDidCatch(error) {
    console.error(`panel: ${this.props.title}: ${error.stack}`);
  }

  render() {
    return this.state.error ? <pre>{String(this.state.error)}</pre> : this.props.children;
  }
}

const heightOf = (drawn) =>
  HEAD + Math.max(...drawn.map(({ panel: { gridPos } }) => gridPos.y + gridPos.h)) * ROW + GAP;

function Board({ given, drawn, theme }) {
  const { board, from, to, step, variables, marks } = given;
  const range = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: 'now-5m', to: 'now' } };
  return (
    <div
      style={{
        position: 'relative',
        width: WIDTH,
        height: heightOf(drawn),
        background: theme.colors.background.canvas,
        color: theme.colors.text.primary,
        ...theme.typography.body,
      }}
    >
      <div style={{ padding: '8px 12px' }}>
        <b style={{ fontSize: 18 }}>{board.title}</b>{' '}
        <span style={{ opacity: 0.7 }}>
          {variables.map(([name, value]) => `${name}: ${value === '.*' ? 'All' : value}`).join(' · ')}
        </span>
      </div>
      {drawn.map(({ panel, frames }) => {
        const { x, y, w, h } = panel.gridPos;
        const place = { position: 'absolute', left: (x * WIDTH) / COLUMNS + GAP / 2, top: HEAD + y * ROW };
        if (panel.type === 'row')
          return (
            <h5 key={panel.id} style={{ ...place, margin: '8px 4px' }}>
              ▾ {panel.title}
            </h5>
          );
        return (
          <div key={panel.id} style={place}>
            <PanelChrome
              title={panel.title}
              description={panel.description}
              width={(w * WIDTH) / COLUMNS - GAP}
              height={h * ROW - GAP}
            >
              {(width, height) => (
                <Fence title={panel.title}>
                  <Inside
                    panel={panel}
                    frames={frames}
                    width={width}
                    height={height}
                    range={range}
                    step={step}
                    theme={theme}
                    marks={marks}
                  />
                </Fence>
              )}
            </PanelChrome>
          </div>
        );
      })}
    </div>
  );
}

register();
const root = createRoot(document.getElementById('board'));

/** Draw one board in the place of the one before; resolves to its height in pixels. */
window.draw = async (given) => {
  const theme = createTheme({ colors: { mode: 'dark' } });
  const drawn = [];
  for (const panel of given.board.panels)
    drawn.push({ panel, frames: await framesOf(panel, given.answers[panel.id], given.step, theme) });
  root.render(
    <ThemeContext.Provider value={theme} key={given.board.uid}>
      <GlobalStyles />
      <Board given={given} drawn={drawn} theme={theme} />
    </ThemeContext.Provider>,
  );
  return heightOf(drawn);
};

/** Wait until nothing changes any more. */
window.still = async () => {
  const element = document.getElementById('board');
  let [before, alike] = ['', 0];
  for (let look = 0; look < LOOKS[1] && alike < LOOKS[0]; look += 1) {
    await new Promise((passed) => setTimeout(passed, LOOK));
    const now = element.innerHTML;
    alike = now === before ? alike + 1 : 0;
    before = now;
  }
};
