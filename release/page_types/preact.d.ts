export const h: any;
export const Fragment: any;
export function render(view: any, place: Element): void;
