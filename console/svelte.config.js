export default {
  compilerOptions: {
    runes: true,
    // Templates are built with DOM calls: the content security policy forbids innerHTML.
    fragments: "tree",
  },
};
