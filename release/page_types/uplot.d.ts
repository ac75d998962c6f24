export default class uPlot {
  constructor(options: object, data: unknown[], place: HTMLElement);
  setSize(size: { width: number; height: number }): void;
  redraw(rebuild?: boolean, recalculate?: boolean): void;
  destroy(): void;
}
