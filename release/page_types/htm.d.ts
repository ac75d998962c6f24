type Html = (strings: TemplateStringsArray, ...values: any[]) => any;
declare const htm: { bind(h: any): Html };
export default htm;
