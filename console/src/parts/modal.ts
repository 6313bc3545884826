/** Opens a dialog. When the dialog is removed, the focus returns to the element that had the focus before. */
export function modal(dialog: HTMLDialogElement): () => void {
  const opener = document.activeElement;
  dialog.showModal();
  return () =>
    queueMicrotask(() => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus({ preventScroll: true });
    });
}
